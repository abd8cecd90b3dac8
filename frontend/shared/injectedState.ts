// The data that Python wrote into the page; null if the page is still a template, as in development.
export function injectedState(): unknown {
  const text = document.getElementById('state')?.textContent ?? ''
  return text.trim().startsWith('__') ? null : JSON.parse(text)
}
