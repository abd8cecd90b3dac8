// A small seeded generator, so that a page with the same seed shows the same thing. Not the stream of Python: weights
// travel in links and exports as numbers, never as seeds.

export class Random {
  /** Where it stands: set again, the same numbers follow. */
  state: number

  constructor(seed: number) {
    this.state = seed >>> 0
    for (let i = 0; i < 4; i++) this.bits() // seeds that differ by one soon part
  }

  /** 32 bits: a Weyl sequence through two rounds of mixing. */
  private bits(): number {
    this.state = (this.state + 0x9e3779b9) >>> 0
    let x = this.state
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b)
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
    return (x ^ (x >>> 16)) >>> 0
  }

  /** Uniform on [0, 1), of 53 bits. */
  uniform(): number {
    return ((this.bits() >>> 5) * 67108864 + (this.bits() >>> 6)) / 9007199254740992
  }

  /** Standard normal. */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform())
  }

  below(n: number): number {
    return Math.floor(this.uniform() * n)
  }

  /** 0 … n−1 in random order. */
  order(n: number): number[] {
    const found = Array.from({ length: n }, (_, i) => i)
    for (let i = n - 1; i > 0; i--) {
      const j = this.below(i + 1)
      ;[found[i], found[j]] = [found[j], found[i]]
    }
    return found
  }
}
