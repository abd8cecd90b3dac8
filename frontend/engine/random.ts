// A small random number generator with a seed, so that the same seed gives the same page. Its numbers differ from those of
// Python. Links and exports therefore contain weights, not seeds.

export class Random {
  /** The state of the generator. Setting it again repeats the same numbers. */
  state: number

  constructor(seed: number) {
    this.state = seed >>> 0
    for (let i = 0; i < 4; i++) this.bits() // so that neighboring seeds give unrelated numbers
  }

  /** 32 bits: a Weyl sequence through two rounds of mixing. */
  private bits(): number {
    this.state = (this.state + 0x9e3779b9) >>> 0
    let x = this.state
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b)
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
    return (x ^ (x >>> 16)) >>> 0
  }

  /** Uniform on [0, 1) with 53 bits. */
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
