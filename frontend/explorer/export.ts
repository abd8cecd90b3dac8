// Exports of the playground: the state as JSON, Python code that computes the same numbers, and the figure as an image.
import type { Playground } from './playground.svelte.ts'

/** Python code that builds this network, sets its weights and prints the numbers of the page. */
export function python(playground: Playground): string {
  const { net, data, activation } = playground
  const name = activation === 'identity' ? 'none' : activation
  const hidden = net.layers.slice(0, -1).map((layer) => `${layer.nOut}:${name}`)
  const text = [net.layers[0].nIn, ...hidden, 1].join('-')
  const rows = (values: Float64Array, width: number): string =>
    `[${Array.from({ length: values.length / width }, (_, r) => `[${Array.from(values.subarray(r * width, (r + 1) * width)).join(', ')}]`).join(',\n     ')}]`
  const weights = net.layers.flatMap((layer, l) => [
    `    "linear${l + 1}.weight": ${rows(layer.W, layer.nIn)},`,
    `    "linear${l + 1}.bias": [${Array.from(layer.b).join(', ')}],`,
  ])
  return `import torch

import multilayer as ml

model = ml.build("${text}", dtype=torch.float64)
weights = {
${weights.join('\n')}
}
model.load_state_dict({name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()})
x = ${rows(data.x, data.features.length)}
y = ${rows(data.y, 1)}

found = ml.trace(model, x, y, loss="${playground.loss}")
print("outputs", *found.output[:, 0].tolist())
print("loss", found.loss)
for step in found.steps:
    print(f"y {step.name}", *step.y.ravel().tolist())
    print(f"delta {step.name}", *step.dy.ravel().tolist())
    for name, gradient in step.gradients.items():
        print(f"d {step.name}.{name}", *gradient.ravel().tolist())
`
}

/** The weights under their names in Python, and the snapshot that restores the state. */
export function json(playground: Playground): string {
  const named = Object.fromEntries(
    playground.net.layers.flatMap((layer, l) => [
      [
        `linear${l + 1}.weight`,
        Array.from({ length: layer.nOut }, (_, o) => Array.from(layer.W.subarray(o * layer.nIn, (o + 1) * layer.nIn))),
      ],
      [`linear${l + 1}.bias`, Array.from(layer.b)],
    ]),
  )
  return `${JSON.stringify({ ...playground.snapshot(), named }, null, 2)}\n`
}

export function download(name: string, content: Blob | string, type = 'text/plain'): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(typeof content === 'string' ? new Blob([content], { type }) : content)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

const STYLES = [
  'fill',
  'fill-opacity',
  'stroke',
  'stroke-width',
  'stroke-dasharray',
  'stroke-linecap',
  'stroke-linejoin',
  'opacity',
  'font-family',
  'font-size',
  'font-weight',
  'text-anchor',
  'dominant-baseline',
  'paint-order',
]

/** A figure of the page as an SVG file. The styles of the style sheet become attributes. */
export function svg(from: SVGSVGElement): string {
  const copy = from.cloneNode(true) as SVGSVGElement
  const [olds, news] = [
    [from, ...from.querySelectorAll('*')],
    [copy, ...copy.querySelectorAll('*')],
  ]
  olds.forEach((old, k) => {
    const style = getComputedStyle(old)
    for (const name of STYLES) news[k].setAttribute(name, style.getPropertyValue(name))
    for (const name of [
      'class',
      'tabindex',
      'role',
      'aria-valuenow',
      'aria-valuemin',
      'aria-valuemax',
      'aria-valuetext',
      'aria-pressed',
    ])
      news[k].removeAttribute(name)
  })
  copy
    .querySelectorAll('[stroke="rgba(0, 0, 0, 0)"]')
    .forEach((hidden) => hidden.getAttribute('fill') === 'none' && hidden.remove())
  const background = document.createElementNS('http://www.w3.org/2000/svg', 'rect')
  background.setAttribute('width', '100%')
  background.setAttribute('height', '100%')
  background.setAttribute('fill', getComputedStyle(document.documentElement).getPropertyValue('--surface').trim())
  copy.prepend(background)
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
  const { width, height } = from.getBoundingClientRect()
  copy.setAttribute('width', String(width))
  copy.setAttribute('height', String(height))
  return new XMLSerializer().serializeToString(copy)
}

/** An SVG file as a PNG image at twice its size in pixels. */
export async function png(picture: string): Promise<Blob> {
  const image = new Image()
  const address = URL.createObjectURL(new Blob([picture], { type: 'image/svg+xml' }))
  image.src = address
  await image.decode()
  const canvas = document.createElement('canvas')
  canvas.width = 2 * image.width
  canvas.height = 2 * image.height
  canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
  URL.revokeObjectURL(address)
  return await new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the browser could not create the PNG image')))),
  )
}
