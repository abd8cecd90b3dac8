// The data that Python wrote into the page; null while the page is only a template (development).
export function injectedState(): unknown {
  const text = document.getElementById('state')?.textContent ?? ''
  return text.trim().startsWith('__') ? null : JSON.parse(text)
}
