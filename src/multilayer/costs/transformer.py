"""Cost of a feed-forward block in a transformer, next to the attention of the same layer.

A layer of a transformer consists of self-attention and a feed-forward block d → f → d, which is applied to each token.
With B sequences of n tokens, h heads and M matrices d × f in the block (2, or 3 with a gated unit), forward:

    block        parameters   M·d·f and biases
                 FLOPs        2·M·B·n·d·f, biases, e·B·n·f for activation, gate and dropout
    attention    parameters   4·d² + 4·d: projections to queries, keys, values and output
                 FLOPs        8·B·n·d² + 4·B·n·d for the projections, 2·B·n²·d each for scores and weighted sums,
                              6·B·h·n² for the scale 1/√(d/h) and the softmax
                 memory       s·B·h·n² bytes for the attention matrix, if it is stored
    convolution  parameters   k²·C·O and O biases; 2·k²·C·O·B·p + O·B·p FLOPs for p positions
    embedding    parameters   V·d; 0 FLOPs, because it is a table look-up

Each weight is used once per position, so a block and a convolution have about 2 FLOPs per parameter and position, and
an embedding has none. Of the matrix products, the share of the block is M·f / (M·f + 4·d + 2·n). The backward pass
has two matrix products for each of the forward pass, so this share also holds for a training step.

Left out: norms, residual sums, and dropout of the attention. Causal masks are not used: all n² scores are counted.
Kernels such as FlashAttention compute the same products, but do not store the attention matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.counts import Count, named
from ..core.named_options import whole
from ..errors import OptionError, SpecError, explain_unknown, unknown_name
from ..nn.layers import GLU, Activation, Dropout, Linear
from ..spec import HasSpec, Spec
from .count import DTYPES
from .formulas import Line, line
from .memory import kept_floats

HEAD = 64
"""Width of a head if the number of heads is not given."""
VOCABULARY = 30_522
"""Number of tokens in the embedding that is shown for comparison, as in BERT."""
KERNEL, CHANNELS, POSITIONS = 3, 64, 56 * 56
"""The convolution that is shown for comparison: a layer of ResNet-50."""
SCALE_AND_SOFTMAX = 6
"""FLOPs per score: one for the scale and five for the softmax."""

LETTERS = {
    "B": "sequences in a batch",
    "n": "tokens in a sequence",
    "d": "width of the model",
    "f": "hidden width of the block",
    "M": "matrices d × f of the block",
    "biases": "biases of the linear maps",
    "learned": "learned numbers of the activation",
    "kept": "numbers per token that the backward pass needs",
    "e": "FLOPs of activation, gate and dropout per hidden unit",
    "h": "heads",
    "s": "bytes of a number",
    "k": "kernel size",
    "C": "channels of the input",
    "O": "channels of the output",
    "p": "positions of an image",
    "V": "tokens in the vocabulary",
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Counts of the feed-forward block: forward FLOPs, and the bytes that it keeps for the backward pass."""

    parameters: int
    matmul: int
    bias: int
    activation: int
    memory: int

    @property
    def flops(self) -> int:
        return int(self.matmul + self.bias + self.activation)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Counts of the attention: forward FLOPs, and the bytes of the attention matrix in `memory`."""

    parameters: int
    projections: int
    bias: int
    scores: int
    softmax: int
    weighted_sums: int
    memory: int

    @property
    def matmul(self) -> int:
        return int(self.projections + self.scores + self.weighted_sums)

    @property
    def flops(self) -> int:
        return int(self.matmul + self.bias + self.softmax)


@dataclass(frozen=True, kw_only=True)
class Other:
    """Counts of a layer of another kind, for comparison."""

    what: str
    parameters: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class TransformerContext:
    """Counts of a feed-forward block and of the attention of the same layer. `transformer_context` creates it.

    Attributes
    ----------
    spec : Spec
        The block.
    batch, sequence_length, heads : int
        Sequences in a batch, tokens in a sequence, and heads of the attention.
    dtype : str
        Data type of all numbers.
    block : Block
        ``parameters``, ``matmul``, ``bias``, ``activation``, ``flops`` and ``memory`` of the block.
    attention : Attention
        ``parameters``, ``projections``, ``bias``, ``scores``, ``softmax``, ``weighted_sums``, ``flops`` and ``memory``
        of the attention.
    convolution, embedding : Other
        ``what``, ``parameters`` and ``flops`` of two other layers, for comparison.
    """

    spec: Spec
    batch: int
    sequence_length: int
    heads: int
    dtype: str
    block: Block
    attention: Attention
    convolution: Other
    embedding: Other

    @property
    def block_share(self) -> float:
        """Share of the block in the forward FLOPs of block and attention."""
        return self.block.flops / (self.block.flops + self.attention.flops)

    @property
    def matmul_share(self) -> float:
        """Share of the block in the matrix products of block and attention, forward or in a training step."""
        return self.block.matmul / (self.block.matmul + self.attention.matmul)

    def per_parameter(self, part: Block | Attention | Other) -> float:
        """Return the forward FLOPs per parameter, for one sequence or image.

        Parameters
        ----------
        part : Block, Attention or Other
            `block`, `attention`, `convolution` or `embedding` of this object.

        Returns
        -------
        float
            The FLOPs divided by the parameters and the number of sequences.

        Examples
        --------
        >>> context = transformer_context("768-3072:gelu-768", sequence_length=512)
        >>> round(context.per_parameter(context.block))
        1025
        """
        return part.flops / (self.batch * part.parameters)

    def lines(self) -> tuple[Line, ...]:
        """Return every count with its formula. `LETTERS` has the meaning of the symbols."""
        block, attention = self.block, self.attention
        return (
            line("block", "parameters", block.parameters),
            *(line("block", f"forward.{name}", getattr(block, name)) for name in ("matmul", "bias", "activation")),
            line("block", "kept (bytes)", block.memory),
            line("attention", "parameters", attention.parameters),
            *(
                line("attention", f"forward.{name}", getattr(attention, name))
                for name in ("projections", "bias", "scores", "softmax", "weighted_sums")
            ),
            line("attention", "matrix (bytes)", attention.memory),
            *(
                line(name, what, value)
                for name, other in (("convolution", self.convolution), ("embedding", self.embedding))
                for what, value in (("parameters", other.parameters), ("forward", other.flops))
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: ints, and the shares as floats."""
        parts = {"block": self.block, "attention": self.attention}
        others = {"convolution": self.convolution, "embedding": self.embedding}
        return {
            "batch": self.batch,
            "sequence_length": self.sequence_length,
            "heads": self.heads,
            **{
                name: {key: int(value) for key, value in vars(part).items()}
                | {"flops": part.flops, "flops_per_parameter": self.per_parameter(part)}
                for name, part in parts.items()
            },
            **{
                name: {
                    "what": other.what,
                    "parameters": int(other.parameters),
                    "flops": int(other.flops),
                    "flops_per_parameter": self.per_parameter(other),
                }
                for name, other in others.items()
            },
            "block_share": self.block_share,
            "matmul_share": self.matmul_share,
        }


@explain_unknown
def transformer_context(
    spec: Spec | str | HasSpec,
    *,
    sequence_length: int,
    heads: int | None = None,
    batch: int = 1,
    dtype: str = "float32",
) -> TransformerContext:
    """Count a feed-forward block together with the attention of the same layer in a transformer.

    Parameters
    ----------
    spec : Spec, str or object with a `spec`
        The block: d → f → d with an activation or a gated unit, as ``ml.feed_forward_block`` creates it.
    sequence_length : int
        Tokens in a sequence.
    heads : int, optional
        Heads of the attention. It must divide d. By default, a head is 64 wide; if 64 does not divide d, there is one
        head.
    batch : int
        Sequences in a batch.
    dtype : str
        Data type of all numbers.

    Returns
    -------
    TransformerContext
        Exact counts of parameters, forward FLOPs and bytes.

    Raises
    ------
    SpecError
        If the network is not such a block.
    OptionError
        If an option is invalid.

    Examples
    --------
    >>> context = transformer_context("768-3072:gelu-768", sequence_length=512, heads=12)
    >>> context.block.parameters, context.attention.parameters
    (4722432, 2362368)
    >>> round(context.matmul_share, 3), context.attention.memory
    (0.6, 12582912)
    """
    spec = Spec.of(spec)
    _require_block(spec)
    tokens, sequences = whole("sequence_length", sequence_length), whole("batch", batch)
    if dtype not in DTYPES:
        raise OptionError(unknown_name("dtype", dtype, DTYPES))
    width = spec.d_out
    if heads is None:
        heads = width // HEAD if width % HEAD == 0 else 1
    heads = whole("heads", heads)
    if width % heads:
        raise OptionError(f"heads must divide the width of the model, {width}, got {heads}")
    B, n, d, h, s = named(B=sequences, n=tokens, d=width, h=heads, s=DTYPES[dtype])
    n2, d2 = Count(tokens**2, "n²", f"{tokens}²"), Count(width**2, "d²", f"{width}²")
    return TransformerContext(
        spec=spec,
        batch=sequences,
        sequence_length=tokens,
        heads=heads,
        dtype=dtype,
        block=_block(spec, B, n, d, s),
        attention=Attention(
            parameters=4 * d2 + 4 * d,
            projections=8 * B * n * d2,
            bias=4 * B * n * d,
            scores=2 * B * n2 * d,
            softmax=SCALE_AND_SOFTMAX * B * h * n2,
            weighted_sums=2 * B * n2 * d,
            memory=s * B * h * n2,
        ),
        convolution=_convolution(B),
        embedding=_embedding(d),
    )


def parse_context(text: str) -> tuple[int, int | None]:
    """Return the sequence length and the number of heads, if given.

    >>> parse_context("512"), parse_context("512,heads=12")
    ((512, None), (512, 12))
    """
    length, _, rest = (part.strip() for part in text.partition(","))
    name, equals, heads = (part.strip() for part in rest.partition("="))
    numbers = [length, *([heads] if rest else [])]
    if not all(n.isascii() and n.isdigit() and len(n) < 16 for n in numbers) or (
        rest and (name, equals) != ("heads", "=")
    ):
        raise OptionError(f"context must be a sequence length, such as 512 or 512,heads=12, got {text[:60]!r}")
    return int(length), int(heads) if rest else None


_BLOCKS = (
    (Linear, Activation, Linear),
    (Linear, Activation, Dropout, Linear),
    (GLU, Linear),
    (GLU, Dropout, Linear),
)


def _require_block(spec: Spec) -> None:
    scaled = any(isinstance(layer, Linear) and layer.scale is not None for layer in spec.layers)
    if scaled or tuple(map(type, spec.layers)) not in _BLOCKS or spec.inputs.count != spec.d_out:
        raise SpecError(
            "a transformer context needs a feed-forward block d → f → d, such as 768-3072:gelu-768 or "
            f"768-swiglu(2048)-768, got {str(spec)[:100]}"
        )


def _block(spec: Spec, B: Count, n: Count, d: Count, s: Count) -> Block:
    """Return the counts of a block. The layers define the FLOPs per element, as in `cost`."""
    f, M = named(f=spec.entries[0].d_out, M=3 if isinstance(spec.layers[0], GLU) else 2)
    tokens, weights = B * n, M * d * f
    rows = [entry.layer.cost(entry.width_in, int(tokens)).forward for entry in spec.entries]
    bias = Count(sum(int(row.bias) for row in rows) // int(tokens), "biases")
    learned = Count(spec.n_parameters - int(weights) - int(bias), "learned")
    e = Count(sum(int(row.activation) + int(row.other) for row in rows) // int(tokens * f), "e")
    return Block(
        parameters=sum((more for more in (bias, learned) if more), weights),
        matmul=2 * M * B * n * d * f,
        bias=B * n * bias if bias else Count(0),
        activation=e * B * n * f,
        memory=s * B * n * Count(int(kept_floats(spec, int(tokens), None)) // int(tokens), "kept"),
    )


def _convolution(B: Count) -> Other:
    C, O, p = named(C=CHANNELS, O=CHANNELS, p=POSITIONS)  # noqa: E741
    k2 = Count(KERNEL**2, "k²", f"{KERNEL}²")
    side = round(POSITIONS**0.5)
    return Other(
        what=f"{KERNEL} × {KERNEL}, {CHANNELS} → {CHANNELS} channels, {side} × {side} positions",
        parameters=k2 * C * O + O,
        flops=2 * k2 * C * O * B * p + O * B * p,
    )


def _embedding(d: Count) -> Other:
    (V,) = named(V=VOCABULARY)
    return Other(what=f"{VOCABULARY:,} tokens", parameters=V * d, flops=Count(0))
