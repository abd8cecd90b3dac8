// Exports of the user's network: its numbers as JSON, Python code that computes the same, and its layers as an image.
import { theme } from '../../shared/theme.svelte.ts'
import { combineMembers } from './predict.ts'
import type { UserModel } from './userModel.svelte.ts'

const list = (values: Iterable<number>): string => `[${[...values].join(', ')}]`

/** Python code that predicts the row like the page: it reads the model file and applies the changes made in the page. */
export function python(userModel: UserModel): string {
  return userModel.data.output.kind === 'numbers' ? ofNetwork(userModel) : ofModel(userModel)
}

function ofModel(userModel: UserModel): string {
  const { data: model, networks, x } = userModel
  const numeric = userModel.network.spec.inputs.numeric
  const alone = networks.length < model.members
  const place = (member: number): number => (alone ? 0 : member)
  const edits = userModel.edits.weights.map(([member, layer, to, from, value]) => {
    const name = userModel.network.layers[layer].name
    return from < 0
      ? `tensors[${place(member)}]["${name}.bias"][${to}] = ${value}`
      : `tensors[${place(member)}]["${name}.weight"][${to}, ${from}] = ${value}`
  })
  const codes = x.length > numeric ? `np.array([${list(x.subarray(numeric))}])` : 'None'
  return `import sys
from dataclasses import replace

import numpy as np

import multilayer as ml
from multilayer.data import Encoded

model = ml.load(sys.argv[1] if len(sys.argv) > 1 else "model.safetensors")
members = ${alone ? `model.members[${model.member}:${model.member + 1}]` : 'model.members'}
tensors = [{name: value.astype(np.float64) for name, value in member.tensors.items()} for member in members]
${edits.map((line) => `${line}\n`).join('')}changed = [replace(member, tensors=values) for member, values in zip(members, tensors)]
model = replace(model, members=tuple(changed))
x = np.array([${list(x.subarray(0, numeric))}])  # the encoded inputs
row = Encoded(x=x, codes=${codes}, y=None, rows=np.arange(1), notes=())

z = model.forward(row)
print("outputs", *z[0].tolist())
print("prediction", *model.encoding.decode(z).ravel().tolist())
`
}

function ofNetwork(userModel: UserModel): string {
  const numeric = userModel.network.spec.inputs.numeric
  const codes = userModel.x.length > numeric ? `, torch.tensor([${list(userModel.x.subarray(numeric))}])` : ''
  return `import json
import sys
from pathlib import Path

import torch

import multilayer as ml

saved = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else "network.json").read_text())
model = ml.build(saved["network"], dtype=torch.float64).eval()
state = model.state_dict()
stored = {**model.spec.tensor_names, **{name: name for name in model.spec.buffers}}
for place, name in stored.items():
    value = torch.tensor(saved["weights_by_name"][place], dtype=torch.float64)
    state[name].copy_(value.reshape(state[name].shape))
x = torch.tensor([${list(userModel.x.subarray(0, numeric))}], dtype=torch.float64)

with torch.no_grad():
    z = model(x${codes})
print("outputs", *z[0].tolist())
`
}

/** The state, its outputs, and every tensor of the selected member under its name in Python. */
export function json(userModel: UserModel): string {
  const found = {
    ...userModel.state,
    network: userModel.data.text,
    outputs: combineMembers(userModel.data.output, userModel.outputs),
    weights_by_name: Object.fromEntries(
      Object.entries(userModel.network.tensors).map(([name, values]) => [name, Array.from(values)]),
    ),
  }
  return `${JSON.stringify(found)}\n`
}

const CELL = 12
const TITLE = 26
const GAP = 18

/** Every layer as a grid of its units for the row shown, one below the other. */
export function svg(userModel: UserModel): string {
  let y = GAP
  let wide = 0
  const parts = userModel.network.layers.map((op, l) => {
    if (op.kind === 'dropout') return ''
    const values = userModel.values[l + 1]
    const across = Math.min(values.length, 32)
    const top = Math.max(1e-12, ...values.map(Math.abs).filter(Number.isFinite))
    const cells = Array.from(values, (value, k) => {
      const [cx, cy] = [GAP + (k % across) * CELL, y + TITLE + Math.floor(k / across) * CELL]
      const fill = theme.color(value < 0 ? '--active-minus' : '--active-plus')
      const share = Math.min(1, Math.abs(value) / top || 0).toFixed(3)
      return `<rect x="${cx}" y="${cy}" width="${CELL}" height="${CELL}" fill="${fill}" fill-opacity="${share}"/>`
    })
    const title = `<text x="${GAP}" y="${y + 14}" font-family="sans-serif" font-size="13" fill="${theme.color('--ink')}">${op.name}: ${op.nOut} units</text>`
    wide = Math.max(wide, across * CELL, 160)
    y += TITLE + Math.ceil(values.length / across) * CELL + GAP
    return title + cells.join('')
  })
  const size = `width="${wide + 2 * GAP}" height="${y}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${wide + 2 * GAP} ${y}"><rect width="100%" height="100%" fill="${theme.color('--surface')}"/>${parts.join('')}</svg>`
}
