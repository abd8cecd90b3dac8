declare module '*.tex.json' {
  const mathml: Record<string, string>
  export default mathml
}
