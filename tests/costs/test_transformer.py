"""A feed-forward block in a transformer: the counts of block, attention and other layers against PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import multilayer as ml
from multilayer.core.counts import Count
from multilayer.costs import transformer_context
from multilayer.costs.transformer import CHANNELS, KERNEL, LETTERS, POSITIONS, VOCABULARY, parse_context
from multilayer.costs.verification import kept_bytes
from multilayer.errors import OptionError, SpecError
from support.cost_command import data, printed, run

BERT = ml.feed_forward_block(768)
BLOCKS = ["8-32:gelu-8", "8-swiglu(20)-8", "8-16:relu:dropout(0.5)-8", "8-linear(16, bias=no):tanh-8", "8-16:prelu-8"]


def counted(run) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize(("d", "heads", "n", "batch"), [(8, 2, 5, 3), (64, 4, 1, 1), (12, 1, 7, 2)])
def test_attention_equals_multihead_attention_of_torch(d: int, heads: int, n: int, batch: int) -> None:
    found = transformer_context(ml.feed_forward_block(d), sequence_length=n, heads=heads, batch=batch).attention
    attention = nn.MultiheadAttention(d, heads, batch_first=True)
    x = torch.randn(batch, n, d, requires_grad=True)
    results = []

    def forward() -> None:
        results.extend(attention(x, x, x, average_attn_weights=False))

    assert sum(p.numel() for p in attention.parameters()) == found.parameters
    assert counted(forward) == found.matmul
    y, matrix = results
    assert matrix.shape == (batch, heads, n, n)
    assert matrix.nbytes == found.memory
    assert counted(lambda: y.sum().backward()) == 2 * found.matmul


@pytest.mark.parametrize("text", BLOCKS)
def test_the_block_equals_its_cost_and_the_counts_of_torch(text: str) -> None:
    found = transformer_context(text, sequence_length=5, batch=3).block
    account = ml.cost(text, batch=15, loss="mse")
    rows = [row.forward for row in account.layers]
    assert (found.parameters, found.flops) == (account.parameters, sum(row.total for row in rows))
    assert (found.matmul, found.bias) == (sum(r.matmul for r in rows), sum(r.bias for r in rows))
    model, x = ml.build(text).train(), torch.randn(15, 8, requires_grad=True)
    assert counted(lambda: model(x)) == found.matmul
    y = model(x)
    assert counted(lambda: y.sum().backward()) == 2 * found.matmul
    assert kept_bytes(model, (torch.randn(15, 8),), torch.zeros(1), None) == found.memory


def test_convolution_and_embedding_equal_torch() -> None:
    found = transformer_context(BERT, sequence_length=16, batch=2)
    convolution = nn.Conv2d(CHANNELS, CHANNELS, KERNEL, padding="same")
    side = round(POSITIONS**0.5)
    images = torch.randn(2, CHANNELS, side, side)
    bias = 2 * CHANNELS * POSITIONS
    assert sum(p.numel() for p in convolution.parameters()) == found.convolution.parameters
    assert counted(lambda: convolution(images)) + bias == found.convolution.flops
    embedding = nn.Embedding(VOCABULARY, 768)
    assert embedding.weight.numel() == found.embedding.parameters
    assert counted(lambda: embedding(torch.zeros(2, 16, dtype=torch.long))) == found.embedding.flops == 0


def test_the_figures_of_bert_base() -> None:
    found = transformer_context(BERT, sequence_length=512)
    assert found.heads == 12
    assert (found.block.parameters, found.attention.parameters) == (4_722_432, 2_362_368)
    assert found.matmul_share == 0.6
    assert found.block_share == pytest.approx(0.599, abs=5e-4)
    assert found.attention.memory == 4 * 12 * 512 * 512
    # The matrix products of 12 layers are the 96 GFLOPs of a forward pass. An L2 penalty adds 2 FLOPs per parameter.
    forward = 12 * (found.block.matmul + found.attention.matmul)
    assert round(forward / 1e9, 1) == 96.6
    assert round(100 * 2 * 110e6 / forward, 2) == 0.23


@pytest.mark.parametrize(("tokens", "share"), [(1, 0.667), (128, 0.649), (512, 0.6), (1536, 0.5), (4096, 0.353)])
def test_the_share_of_the_block_falls_with_the_sequence_length(tokens: int, share: float) -> None:
    found = transformer_context(BERT, sequence_length=tokens, batch=7)
    assert found.matmul_share == pytest.approx(3072 / (3072 + 2 * 768 + tokens))
    assert found.matmul_share == pytest.approx(share, abs=5e-4)


def test_flops_per_parameter_are_two_per_position() -> None:
    found = transformer_context(BERT, sequence_length=512, batch=4)
    assert found.per_parameter(found.block) == pytest.approx(2 * 512, rel=0.01)
    assert found.per_parameter(found.convolution) == pytest.approx(2 * 56 * 56, rel=0.01)
    assert found.per_parameter(found.embedding) == 0


@pytest.mark.parametrize("text", BLOCKS)
def test_every_formula_gives_its_value(text: str) -> None:
    for line in transformer_context(text, sequence_length=5, heads=2, batch=3).lines():
        numbers = line.numbers.replace("·", "*").replace("²", "**2")
        assert eval(numbers) == line.value
        assert set(line.formula.replace("²", "").replace("·", " ").replace("+", " ").split()) <= {
            *LETTERS,
            *"0123456789",
        }


def test_by_default_a_head_is_64_wide() -> None:
    heads = {d: transformer_context(ml.feed_forward_block(d), sequence_length=2).heads for d in (64, 100, 1024)}
    assert heads == {64: 1, 100: 1, 1024: 16}


@pytest.mark.parametrize(
    "text",
    [
        "784-256-10",
        "8-32:gelu-9",
        "8-8",
        "8-32-32-8:relu",
        "8-dropout(0.1)-32:gelu-8",
        "8-[8:relu-8]",
        "8-linear(16, scale=2):relu-8",
    ],
)
def test_other_networks_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="needs a feed-forward block d → f → d"):
        transformer_context(text, sequence_length=4)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(OptionError, match="heads must divide the width of the model, 768, got 7"):
        transformer_context(BERT, sequence_length=4, heads=7)
    with pytest.raises(OptionError, match="sequence_length must be a whole number of at least 1, got 0"):
        transformer_context(BERT, sequence_length=0)
    with pytest.raises(OptionError, match="unknown dtype 'int8'"):
        transformer_context(BERT, sequence_length=4, dtype="int8")
    for text in ("", "many", "512,12", "512,heads=", "512,heads=12,3", "-4", "٤"):
        with pytest.raises(OptionError, match="context must be a sequence length, such as 512 or 512,heads=12"):
            parse_context(text)


# mlp cost --context


def test_the_command_prints_the_counts_and_formulas() -> None:
    text = printed("768-3072:gelu-768", "--batch", "1", "--context", "512,heads=12")
    for figure in ("1 sequence of 512 tokens, 12 heads", "4,722,432", "2,362,368", "8·B·n·d² = 8·1·512·768²", "60 %"):
        assert figure in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_json_of_the_command_has_the_same_counts() -> None:
    found = data("768-3072:gelu-768", "--batch", "2", "--context", "512")["context"]
    expected = transformer_context("768-3072:gelu-768", sequence_length=512, batch=2)
    assert found["heads"] == 12
    assert found["attention"]["memory"] == expected.attention.memory
    assert found["block"]["flops"] == expected.block.flops
    assert found["matmul_share"] == 0.6
    assert {"where": "attention", "what": "matrix (bytes)", "value": int(expected.attention.memory)}.items() <= found[
        "formulas"
    ][11].items()
    assert not any(isinstance(value, Count) for value in expected.to_dict()["attention"].values())


def test_the_command_refuses_other_networks_and_options_that_it_would_ignore() -> None:
    assert "needs a feed-forward block" in run("cost", "784-256-10", "--context", "512", code=2).stderr
    for option in (["--l2"], ["--engine", "fused"], ["--loss", "mse"]):
        result = run("cost", "8-32:gelu-8", "--context", "4", *option, code=2)
        assert f"--context counts a layer of a transformer: omit {' '.join(option)}" in result.stderr
