"""Launches every kernel of the package at small sizes, for compute-sanitizer, under which tests would take hours.

    compute-sanitizer --tool memcheck --kernel-name kns=constrain python tests/kernels/every_kernel.py
    compute-sanitizer --tool racecheck --kernel-name kns=constrain python tests/kernels/every_kernel.py

Prints the names of the kernels that ran with ``--names``, for which no sanitizer may run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch

from constrain.kernels import (
    Activation,
    AttentionWorkspace,
    ChosenRows,
    DryTensors,
    ExpertMLP,
    GroupQuantization,
    KVQuantization,
    LowRankUpdate,
    LowRankWorkspace,
    Pages,
    PeerSum,
    PenaltyParameters,
    PenaltyScratch,
    Routing,
    RowNorm,
    SamplingTensors,
    Scoring,
    StackedWeight,
    StepTokens,
    TensorCoreWeight,
    TokenPages,
    TopTokens,
    TruncatedFloat,
    Unquantized,
    add_bias,
    apply_bitmask,
    apply_dry,
    apply_guidance,
    can_access_peers,
    cuda,
    enter_tokens,
    expert_mlp,
    gated_activation,
    gated_linear,
    layer_norm,
    linear,
    measure_masses,
    normalise_heads,
    paged_attention,
    penalise,
    philox_uniform,
    rms_norm,
    route,
    route_normed,
    sample,
    stacks,
)
from constrain.kernels.gather import gathered
from constrain.kernels.weights.fragments import BITS, RecordForm

HALVES = torch.float16, torch.bfloat16
# Lengths below and at the borders of tiles and pages; 0 is idle.
LENGTHS = [4, 16, 17, 257, 0]


def bitmasks() -> None:
    chosen = torch.tensor([1, -1], dtype=torch.int32)
    for dtype, width, gap in product((torch.float32, *HALVES), (33, 1000, 9000), (0, 3)):
        logits, bits = torch.randn(2, width + gap).to(dtype)[:, :width], torch.randint(-(2**31), 2**31, (2, 300)).int()
        bits = bits[:, : -(-width // 32)].contiguous()
        apply_bitmask(logits, bits)
        apply_bitmask(logits, bits, chosen)


def norms() -> None:
    for dtype, (rows, width) in product(HALVES, ((1, 8), (3, 320), (2, 16_384))):
        x, residual = torch.randn(2, rows, width).to(dtype)
        weight, bias = torch.randn(2, width).to(dtype)
        rms_norm(x, weight, 1e-5, residual)
        rms_norm(x, None, 1e-5)
        layer_norm(x, weight, bias, 1e-5, residual)
    for dtype, dim in product(HALVES, (8, 256)):
        normalise_heads(torch.randn(2, 1, 7, dim).to(dtype).narrow(2, 0, 5), torch.randn(5, dim).to(dtype), 1e-5)


def products() -> None:
    for dtype, rows, (inputs, outputs) in product(HALVES, (1, 7, 8), ((8, 37), (520, 100), (4096, 24))):
        x, residual = torch.randn(rows, inputs).to(dtype), torch.randn(rows, outputs).to(dtype)
        weight, bias = torch.randn(2 * outputs, inputs).to(dtype), torch.randn(2 * outputs).to(dtype)
        for norm in (None, RowNorm(torch.randn(inputs).to(dtype), 1e-5)):
            linear(x, weight[:outputs], bias[:outputs], residual, norm)
            linear(x, weight, norm=norm)
            for activation in Activation:
                gated_linear(x, weight, bias, activation, norm)
                gated_activation(torch.randn(rows, 2 * outputs // 8 * 8).to(dtype), activation)


def updates() -> None:
    for dtype, (inputs, outputs), rank in product(HALVES, ((8, 37), (2312, 100)), (8, 48)):
        weight, down = torch.randn(2 * outputs, inputs).to(dtype), torch.randn(rank, inputs).to(dtype)
        up, bias = torch.randn(2 * outputs, rank).to(dtype), torch.randn(2 * outputs).to(dtype)
        first, both, workspace = LowRankUpdate(down, up[:outputs]), LowRankUpdate(down, up), LowRankWorkspace()
        for rows, norm in product((1, 8, 9), (None, RowNorm(torch.randn(inputs).to(dtype), 1e-5))):
            x, residual = torch.randn(rows, inputs).to(dtype), torch.randn(rows, outputs).to(dtype)
            for _ in range(2):  # the second uses the workspace as the first has left it
                linear(x, weight[:outputs], bias[:outputs], residual, norm, first, workspace)
                gated_linear(x, weight, bias, Activation.SILU, norm, both, workspace)


def packed_products() -> None:
    # Blocks with several tiles keep their rows, where there are some; many inputs fill rings several times.
    many = 128 * torch.cuda.get_device_properties(0).multi_processor_count
    shapes = ((1, 64, 328), (1, 64, 9224), (1, many, 328), (8, 64, 328), (16, 64, 328))
    shapes += ((20, 64, 328), (20, 64, 9224), (2, many, 328))
    for kind, dtype, (rows, outputs, inputs) in product(("int4", "int8", "float8", "float4"), HALVES, shapes):
        codes = torch.randint(0, 1 << BITS[kind], (outputs, inputs)).to(torch.uint8)
        for size, has_zeros in product((32, 128), (False, True) if kind.startswith("int") else (False,)):
            scales = torch.rand(outputs, -(-inputs // size)).to(dtype)
            zeros = torch.zeros_like(scales, dtype=torch.uint8) if has_zeros else None
            weight = TensorCoreWeight.of_codes(kind, codes, scales, zeros, size, dtype)
            assert weight is not None
            multiply_packed(weight, rows)
    for dtype, (rows, outputs, inputs) in product(HALVES, shapes):
        codes = torch.randint(0, 16, (outputs, inputs))
        scales = torch.randint(0, 127, (outputs, -(-inputs // 16)))
        floats = TensorCoreWeight.of_scaled_floats(codes.byte(), scales.byte(), torch.rand(outputs), dtype)
        assert floats is not None
        multiply_packed(floats, rows)


def multiply_packed(weight: TensorCoreWeight, rows: int) -> None:
    outputs, inputs = weight.shape
    x, residual, bias = (torch.randn(rows, each).to(weight.dtype) for each in (inputs, outputs, outputs))
    for norm in (None, RowNorm(torch.randn(inputs).to(weight.dtype), 1e-5)):
        linear(x, weight, bias[0], residual, norm)
        gated_linear(x, weight, bias[0], Activation.SILU, norm)
    linear(torch.randn(65, inputs).to(weight.dtype), weight)


def gathers() -> None:
    for dtype, rows, columns in product(HALVES, (1, 65), (8, 1032)):
        x, order = torch.randn(rows, 520).to(dtype), torch.randint(0, 520, (columns,)).int()
        gathered(x, order)
        gathered(x, order, RowNorm(torch.randn(520).to(dtype), 1e-5))


def experts() -> None:
    for dtype, (count, chosen), (size, width) in product(HALVES, ((8, 2), (130, 6)), ((8, 72), (136, 40), (8, 4104))):
        gate_up, down = torch.randn(count, 2 * width, size).to(dtype), torch.randn(count, size, width).to(dtype)
        biases = torch.randn(count, 2 * width).to(dtype), torch.randn(count, size).to(dtype)
        for rows in (1, 7, 16):
            x, logits = torch.randn(rows, size).to(dtype), torch.randn(rows, count).to(dtype)
            choice = route(logits, Routing(chosen))
            expert_mlp(x, choice, ExpertMLP(gate_up, down, Activation.SILU))
            choice = route(logits, Routing(chosen, Scoring.SIGMOID), torch.randn(count))
            expert_mlp(x, choice, ExpertMLP(gate_up, down, Activation.CLAMPED_SWIGLU, *biases), x)
    for rows, (count, chosen) in product((1, 8), ((8, 2), (128, 6))):
        x, weight, factor = torch.randn(rows, 136), torch.randn(count, 136), torch.randn(136)
        norm = RowNorm(factor.bfloat16(), 1e-5)
        route_normed(x.bfloat16(), norm, weight.bfloat16(), torch.randn(count).bfloat16(), Routing(chosen))


def packed_experts() -> None:
    """With experts in each form that kernels take, for few rows and for more."""
    for dtype, kind, size, zeros in product(HALVES, BITS, (32, 128), (False, True)):
        form = RecordForm(kind, size, torch.float16, zeros)
        if not stacks(form, 32) or (kind == "scaled_float4") > (size == 128 and not zeros):
            continue
        gate_up, down = (_random_stack(form, 4, *shape, dtype) for shape in ((64, 128), (128, 32)))
        x = torch.randn(9, 128).to(dtype)
        for rows in (1, 9):
            choice = route(torch.randn(rows, 4).to(dtype), Routing(2))
            expert_mlp(x[:rows], choice, ExpertMLP(gate_up, down, Activation.SILU), x[:rows])
            if kind == "int4":
                orders = (torch.randperm(each.width).int().expand(4, -1).contiguous() for each in (gate_up, down))
                ordered = [replace(each, order=order) for each, order in zip((gate_up, down), orders, strict=True)]
                expert_mlp(x[:rows], choice, ExpertMLP(*ordered, Activation.SILU), x[:rows])


def _random_stack(form: RecordForm, count: int, outputs: int, inputs: int, dtype: torch.dtype) -> StackedWeight:
    records = torch.zeros(count * outputs // 16, -(-inputs // 128), form.bytes, dtype=torch.uint8)
    return StackedWeight(TensorCoreWeight(records, form, count * outputs, inputs, dtype), count)


def attend(
    dtype: torch.dtype,
    lengths: Sequence[int],
    shape: tuple[int, int, int],
    formats: tuple[KVQuantization, KVQuantization],
    queries: int = 1,
    window: int | None = None,
    cap: float | None = None,
) -> None:
    heads, kv_heads, dim = shape
    blocks = -(-max(lengths) // 256)
    states = torch.randn(2, len(lengths) * blocks, 256, kv_heads, dim).to(dtype)
    keys, values = (quantization.quantize(each) for quantization, each in zip(formats, states, strict=True))
    table = torch.randperm(len(lengths) * blocks).view(len(lengths), blocks).int()
    pages = Pages(keys, values, table, *formats)
    qkv = torch.randn(len(lengths), queries, heads + 2 * kv_heads, dim).to(dtype)
    cos, sin = torch.randn(2, blocks * 256, 1, dim // 16 * 16).to(dtype)
    on_device, workspace = torch.tensor(lengths, dtype=torch.int), AttentionWorkspace()
    for _ in range(2):  # the second uses the workspace as the first has left it
        paged_attention(qkv, cos, sin, pages, on_device, scale=dim**-0.5, window=window, cap=cap, workspace=workspace)


def attentions() -> None:
    plain = [(8, 4, 64), (4, 2, 32), (8, 2, 128), (6, 2, 96), (4, 2, 256)]
    coded = [(8, 4, 64), (8, 2, 128), (4, 2, 256)]
    truncated = [(TruncatedFloat(), TruncatedFloat())]
    grouped = [
        (GroupQuantization(8), GroupQuantization(8)),
        (GroupQuantization(8), GroupQuantization(4)),
        (GroupQuantization(4), GroupQuantization(4)),
    ]
    for dtype in HALVES:
        own = Unquantized(dtype)
        for formats, shape in [*product([(own, own)], plain), *product(truncated, plain), *product(grouped, coded)]:
            attend(dtype, LENGTHS, shape, formats)
            attend(dtype, [1500], shape, formats, window=1024, cap=5.0)  # one sequence has many splits
            attend(dtype, LENGTHS, shape, formats, queries=4, window=100)
        attend(dtype, LENGTHS, (40, 1, 128), (own, own), queries=2)  # several blocks of rows
        attend(dtype, [40 + i for i in range(100)], (8, 4, 64), (own, own))  # several blocks to a multiprocessor


def sampling() -> None:
    settings = [(0.0, 0, 0.0, 0.0), (1.0, 0, 0.0, 0.0), (0.8, 50, 0.8, 0.0), (1.5, 3, 0.5, 0.2), (1.0, 0, 0.95, 0.05)]
    rows = len(settings) + 1
    temperature, top_k, top_p, min_p = (torch.tensor(each) for each in zip(*settings, settings[1], strict=True))
    values = SamplingTensors(temperature, top_k.int(), top_p, min_p, torch.arange(rows), torch.arange(rows).int())
    some, none = torch.full((rows,), 0.5), torch.zeros(rows)
    shaping = dict.fromkeys(("smoothing_factor", "top_a", "tfs", "typical", "skew", "temp_exponent"), some)
    shaping |= {"min_temp": some, "max_temp": 3 * some, "xtc_probability": some, "xtc_threshold": none}
    shaping |= {"mirostat_mu": 8 * some, "temperature_last": torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32)}
    philox_uniform(torch.arange(rows), torch.arange(rows).int())
    for width in (50, 4003, 33_000):
        logits = torch.randn(rows, width)
        logits[-1] = -torch.inf
        sample(logits, values)
        sample(logits.bfloat16().float(), values)  # many are equal
        bits = torch.randint(-(2**31), 2**31, (3, -(-width // 32))).int()
        masks = ChosenRows(bits, torch.tensor([0, 2, -1, 1, 0, 2], dtype=torch.int32))
        sample(logits, values, allowed=masks)
        top = TopTokens(torch.empty(rows, 20).long(), torch.empty(rows, 20), torch.ones(rows).int())
        for most in (1, 20, 700, 1024):
            sample(logits, replace(values, **shaping), None, masks, masks, top, shaped=True, max_candidates=most)


def steps() -> None:
    text = TokenPages(torch.randint(0, 50, (24, 16)).int(), torch.randperm(24).view(4, 6).int())
    lengths = torch.tensor([90, 7, 81, 60], dtype=torch.int)
    some, places = torch.tensor([1.2, 1.0, 1.5, 1.1]), torch.tensor([-1, -1, 20, 0], dtype=torch.int)
    decays, starts = torch.tensor([[0, 0, 40, 64], [0, 5, 70, 99]], dtype=torch.int)
    values = PenaltyParameters(some, places, decays, some - 1, some - 1, starts)
    scratch = PenaltyScratch()
    for _ in range(2):
        penalise(torch.randn(4, 50), text, lengths, values, scratch)
    integers = torch.tensor([[1, 2, 0, 3], [9, 20, 1, 5], [0, 30, 0, 9]]).int()
    breakers = ChosenRows(torch.tensor([[4, 0]]).int(), torch.tensor([0, -1, 0, -1]).int())
    apply_dry(torch.randn(4, 50), text, lengths, DryTensors(some, some, *integers), breakers)
    given, past = torch.tensor([7, ~2, 9, ~0]).int(), torch.tensor([0, 17, -1, 16]).int()
    enter_tokens(StepTokens(given, past, *torch.zeros(2, 4).int()), torch.tensor([-1, 30, 40]), text)


def rows_of_logits() -> None:
    chosen = torch.tensor([1, -1, 1], dtype=torch.int32)
    for width in (50, 4003):
        logits = torch.randn(3, width)
        apply_guidance(logits, chosen, torch.rand(3))
        add_bias(logits, torch.randn(2, width), chosen)
        bits = ChosenRows(torch.randint(-(2**31), 2**31, (2, -(-width // 32))).int(), chosen)
        measure_masses(logits, chosen.long(), bits, bits)
        measure_masses(logits, chosen.long())


def reading() -> None:
    """The kernel of the benchmarks that does nothing else."""
    memory, out = torch.randn(1 << 16), torch.empty(1, dtype=torch.int32)
    cuda.module.read_all(
        memory=cuda.address(memory), bytes=memory.nbytes, out=cuda.address(out), stream=cuda.stream(memory)
    )


def exchanges() -> None:
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())][:2]
    if not can_access_peers(devices):
        return
    sums = PeerSum(devices)
    for dtype, size in product((*HALVES, torch.float), (8, 4096)):
        parts = [torch.randn(size, device=device).to(dtype) for device in devices]
        for residuals in ([None] * len(devices), [each.clone() for each in parts]):
            sums(parts, residuals)
    for device in devices:
        torch.cuda.synchronize(device)


def launch_all() -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        for family in (
            bitmasks,
            norms,
            products,
            updates,
            packed_products,
            experts,
            packed_experts,
            gathers,
            attentions,
            sampling,
            steps,
            rows_of_logits,
            reading,
            exchanges,
        ):
            family()
            torch.cuda.synchronize()
            print(family.__name__, file=sys.stderr, flush=True)


def names() -> Iterator[str]:
    """Kernels that ran, as they are declared."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        launch_all()
    yield from sorted({event.key for event in profile.key_averages() if "constrain::" in event.key})


if __name__ == "__main__":
    if "--names" in sys.argv:
        print(*names(), sep="\n")
    else:
        launch_all()
