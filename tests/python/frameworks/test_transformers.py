"""attn_implementation="redblue" of Hugging Face transformers. Each model's own eager attention says what is right. The walk
over all architectures is scripts/transformers_table.py; here are those that differ in kind."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import walk_models  # noqa: E402
from transformers import masking_utils as theirs  # noqa: E402

import redblue  # noqa: E402
import redblue.torch  # noqa: E402
from redblue._transformers import attention as glue  # noqa: E402
from redblue._transformers import masks as rules  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")


@pytest.fixture(autouse=True)
def one_thread():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    redblue.torch.register_transformers()


@pytest.fixture(params=[False, True], ids=["few pairs", "many pairs"])
def many(request, monkeypatch):
    """With many pairs, lengths are options too."""
    if request.param:
        monkeypatch.setattr(redblue._call.masks, "LEAST_PAIRS", 1)
    return request.param


#: Grouped heads; windows; softcap; sinks; chunks; values of other widths than keys; position biases; cross attention; prefixes
#: of images; rows of padding that are pooled; windows in encoders; sound; images;
#: keys by their indices.
SAME = ("llama", "mistral", "gemma2", "gpt_oss", "llama4_text", "deepseek_v3", "t5", "bart", "bert", "clip_text_model", "paligemma",
        "modernbert", "layoutlmv3", "whisper", "vit", "deepseek_v32")  # fmt: skip


@pytest.mark.parametrize("model_type", SAME)
def test_a_model_gets_what_its_eager_attention_gets(monkeypatch, model_type):
    monkeypatch.setattr(redblue._call.masks, "LEAST_PAIRS", 1)
    found = walk_models.walk(model_type)
    assert found and {result for _, _, result, _ in found} == {"same"}, [row for row in found if row[2] != "same"]


@pytest.mark.parametrize("changed", [{"attention_mask": None}, {"scaling": 0.2}, {"position_bias": None}])
def test_the_walk_sees_what_is_left_out(monkeypatch, changed):
    """A mask, a scale, a position bias."""
    right = glue.attend

    def wrong(module, query, key, value, attention_mask, **options):
        return right(module, query, key, value, **{"attention_mask": attention_mask, **options, **changed})

    monkeypatch.setattr(glue, "attend", wrong)
    found = walk_models.walk("t5")
    assert {result for _, scenario, result, _ in found if scenario in ("right", "left gradients")} == {"different"}


@pytest.mark.parametrize("model_type, said", [("bloom", 'attention of its own .* choose "eager"; where'), ("falcon", r'"sdpa" inside redblue.use\(\)')])
def test_models_with_attention_of_their_own_refuse_the_name(model_type, said):
    """Before, they computed without redblue and without a word, and some of them took its masks for numbers."""
    config = walk_models.tiny_config(model_type)
    (model_class,) = walk_models.classes_of(model_type)[0]
    with pytest.raises(redblue.Unsupported, match=said):
        model_class._from_config(config, attn_implementation="redblue")
    model = model_class._from_config(config, attn_implementation="eager")
    redblue.torch.register_transformers()  # twice is once
    assert model.get_correct_attn_implementation("eager") == "eager"


def test_sinks_of_each_query_are_refused():
    found = walk_models.walk("inkling2_text")
    assert found and all(row[3].startswith("sinks are [") for row in found if row[2] != "eager fails")


class Module:  # what a layer of transformers is, for its attention function
    is_causal = True
    training = False


def eager(q, k, v, mask=None, bias=None, scale=None, softcap=None):
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores + mask
    return (scores.softmax(-1) @ v).transpose(1, 2)


N = 9
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 0, 1, 0, 1]])
LEFT = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * N], dtype=torch.bool)
PADDING = {"no padding": None, "left": LEFT, "right": LEFT.flip(1), "between": LEFT & (torch.arange(N) != 5)}


def packed(function):
    ids = theirs.find_packed_sequence_indices(POSITIONS)
    return theirs.and_masks(
        theirs.remap_positions_for_packed_sequence(function, POSITIONS), theirs.packed_sequence_mask_function(ids)
    )


def blocks(*ids):
    return theirs.or_masks(theirs.causal_mask_function, theirs.blockwise_overlay(torch.tensor(ids)))


#: A mask as transformers asks for it, and is it a rule? [n_q, n_k], the offsets, the function.
MASKS = {
    "causal": (N, N, 0, 0, theirs.causal_mask_function, True),
    "window": (N, N, 0, 0, theirs.sliding_window_causal_mask_function(3), True),
    "window on both sides": (N, N, 0, 0, theirs.sliding_window_bidirectional_mask_function(2), True),
    "all": (N, N, 0, 0, theirs.bidirectional_mask_function, True),
    "cross": (5, N, 0, 0, theirs.bidirectional_mask_function, True),
    "one token": (1, N, 8, 0, theirs.causal_mask_function, True),
    "static cache": (3, 14, torch.tensor(6), 0, theirs.causal_mask_function, True),
    "sliding cache": (3, 7, 6, 2, theirs.sliding_window_causal_mask_function(4), True),
    "prefix": (N, N, 0, 0, blocks([0] * 4 + [-1] * 5, [0] * 4 + [-1] * 5), True),
    "other prefixes": (N, N, 0, 0, blocks([0] * 4 + [-1] * 5, [0] * 3 + [-1] * 6), False),
    "blocks": (N, N, 0, 0, blocks([-1, 0, 0, 0, -1, -1, 1, 1, -1], [-1] * N), False),
    "chunks": (N, N, 0, 0, theirs.chunked_causal_mask_function(4, torch.tensor([3, 0])), False),
    "packed": (N, N, 0, 0, packed(theirs.causal_mask_function), True),
    "packed windows": (N, N, 0, 0, packed(theirs.sliding_window_causal_mask_function(2)), True),
}


def asked(name, padding, **options):
    n_q, n_k, q_offset, kv_offset, function, _ = MASKS[name]
    return dict(
        batch_size=2, q_length=n_q, kv_length=n_k, q_offset=q_offset, kv_offset=kv_offset, mask_function=function,
        attention_mask=PADDING[padding], dtype=torch.float64, **options,
    )  # fmt: skip


def inputs_of(n_q, n_k):
    shapes = (2, 4, n_q, 8), (2, 2, n_k, 8), (2, 2, n_k, 6)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("biased, softcap", [(False, None), (True, None), (False, 0.8)])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", MASKS)
def test_masks_by_rule_are_those_of_eager_attention(many, name, padding, biased, softcap):
    """Outputs and gradients, rows of padding that see no key among them; with a position bias, and its gradient."""
    if name.startswith("packed") and padding != "no padding":
        pytest.skip("transformers takes no padding beside packed sequences")
    want = theirs.eager_mask(**asked(name, padding))
    mask = rules.mask(**asked(name, padding))
    assert (type(mask) is rules.RuleMask) == MASKS[name][-1]
    inputs = inputs_of(*MASKS[name][:2])
    bias = torch.randn(1, 4, *MASKS[name][:2], dtype=torch.float64, requires_grad=True) if biased else None
    got, wanted = glue.attend(Module(), *inputs, mask, position_bias=bias, softcap=softcap)[0], eager(*inputs, want, bias, softcap=softcap)
    torch.testing.assert_close(got, wanted)
    do = torch.randn_like(wanted)
    of = [*inputs, bias] if biased else inputs
    for g, w in zip(torch.autograd.grad(got, of, do), torch.autograd.grad(wanted, of, do)):
        torch.testing.assert_close(g, w)


def test_no_matrix_is_built(many, monkeypatch):
    monkeypatch.setattr(theirs, "eager_mask", None)
    for name, padding in (("causal", "left"), ("window", "right"), ("window on both sides", "left"), ("static cache", "right"), ("prefix", "left")):
        mask = rules.mask(**asked(name, padding))
        with torch.no_grad():
            glue.attend(Module(), *inputs_of(*MASKS[name][:2]), mask)
    if many:
        mask = rules.mask(**asked("packed windows", "no padding"))
        glue.attend(Module(), *inputs_of(N, N), mask)
        bias = torch.randn(1, 4, N, N, dtype=torch.float64, requires_grad=True)
        glue.attend(Module(), *inputs_of(N, N), rules.mask(**asked("causal", "right")), position_bias=bias)


def test_a_mask_that_is_read_has_the_numbers_of_eager_attention():
    want = theirs.eager_mask(**asked("window", "left"))
    make = lambda: rules.mask(**asked("window", "left"))
    assert make().shape == want.shape and make().dtype == want.dtype
    torch.testing.assert_close(make() + 1, want + 1)
    torch.testing.assert_close(make()[:, :, 2:4], want[:, :, 2:4])
    assert type(make()[:, :, :, :N]) is rules.RuleMask
    inputs = inputs_of(N, N)
    for write in (lambda m: m[0, 0, 5].fill_(0), lambda m: m.mul_(0), lambda m: m.__setitem__((0, 0, 5), 0.0)):
        mask, plain = make(), want.clone()
        write(mask), write(plain)
        torch.testing.assert_close(glue.attend(Module(), *inputs, mask)[0], eager(*inputs, plain))


def test_masks_that_are_traced_are_tensors():
    function = lambda x: rules.mask(batch_size=2, q_length=N, kv_length=N, attention_mask=LEFT) + x
    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(torch.zeros(1)), function(torch.zeros(1)))


def call(*inputs, attention_mask=None, module=None, **options):
    return glue.attend(module or Module(), *inputs, attention_mask, **options)[0]


def test_the_mask_decides():
    """Not is_causal of the module, which is True here."""
    inputs = inputs_of(5, N)
    torch.testing.assert_close(call(*inputs), eager(*inputs))
    torch.testing.assert_close(call(*inputs, is_causal=False), eager(*inputs))
    keep = torch.rand(2, 1, 5, N) < 0.6
    keep[..., 0] = True
    hidden = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -1e30)
    for mask in (keep, hidden, keep[:1, 0], hidden[:1, 0]):
        wanted = hidden if mask.dim() > 3 else hidden[:1]
        torch.testing.assert_close(call(*inputs, attention_mask=mask, is_causal=True), eager(*inputs, wanted))
    with pytest.raises(redblue.Unsupported, match="^is_causal=True without a mask"):
        call(*inputs, is_causal=True)
    one = inputs_of(1, N)
    torch.testing.assert_close(call(*one, is_causal=True), eager(*one))
    for mask, said in ((keep[:, 0, 0], "^attention_mask is .2, 9.: give"), (keep[..., :4], "9 keys$"), (keep.long(), "elements of torch.int64")):
        with pytest.raises(redblue.InvalidProblem, match=said):
            call(*inputs, attention_mask=mask)
    with pytest.raises(redblue.Unsupported, match="^attention_mask is a tuple"):
        call(*inputs, attention_mask=())


def test_queries_or_keys_of_one_batch_are_those_of_all():
    q, k, v = inputs_of(5, N)
    torch.testing.assert_close(call(q[:1], k, v), eager(q[:1], k, v))
    torch.testing.assert_close(call(q, k[:1], v[:1]), eager(q, k[:1], v[:1]))
    mask = rules.mask(**{**asked("cross", "right"), "q_length": 5})
    torch.testing.assert_close(call(q[:1], k, v, attention_mask=mask), eager(q[:1], k, v, mask.numbers()))


def test_dropout_is_for_modules_that_train():
    """Eager attention asks the module; some models hand on their share of dropout in inference, too."""
    inputs = inputs_of(5, N)
    torch.testing.assert_close(call(*inputs, dropout=0.5), eager(*inputs))
    training = Module()
    training.training = True
    assert not torch.allclose(call(*inputs, dropout=0.5, module=training), eager(*inputs))


def test_scales_may_be_learned():
    inputs = inputs_of(5, N)
    scale = torch.rand(4, 1, 1, dtype=torch.float64, requires_grad=True)
    got, want = call(*inputs, scaling=scale), eager(*inputs, scale=scale)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(o.square().sum(), scale) for o in (got, want)))


def test_keywords():
    """What changes the result is computed or refused; what does not passes."""
    q, bias, sinks = (torch.randn(shape, dtype=torch.float64) for shape in ((1, 4, 5, 8), (1, 4, 5, 5), (4,)))
    wanted = lambda **options: redblue.attention(q, q, q, **options).transpose(1, 2)
    mask = torch.rand(1, 1, 5, 5) < 0.6
    mask[..., 0] = True
    torch.testing.assert_close(call(q, q, q, position_bias=bias), wanted(bias=bias))
    torch.testing.assert_close(call(q, q, q, position_bias=bias, attention_mask=mask), wanted(bias=bias.masked_fill(~mask, -torch.inf)))
    numbers = torch.randn(1, 1, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(call(q, q, q, position_bias=bias, attention_mask=numbers), wanted(bias=bias + numbers))
    for name in ("sinks", "s_aux"):
        torch.testing.assert_close(call(q, q, q, **{name: sinks}), wanted(sinks=sinks))
    torch.testing.assert_close(call(q, q, q, softcap=2.0), wanted(softcap=2.0))
    harmless = {"position_ids": torch.arange(5)[None], "cache_position": torch.arange(5), "use_cache": True, "indices": None}
    torch.testing.assert_close(call(q, q, q, **harmless), wanted())
    with pytest.warns(UserWarning, match="output_attentions=True.*eager"):
        call(q, q, q, output_attentions=True)
    with pytest.raises(redblue.Unsupported, match='^block_indices, later: .*"eager"'):
        call(q, q, q, block_indices=torch.zeros(1, 5, 2), later=1)
    indices = torch.tensor([[[0, 1], [3, 1], [2, 4], [0, 4], [1, 2]]])
    chosen = torch.zeros(1, 1, 5, 5, dtype=torch.bool).scatter(-1, indices[:, None], True)
    torch.testing.assert_close(call(q, q, q, indices=indices), wanted(bias=chosen))
    chosen[..., 0] = True
    torch.testing.assert_close(
        call(q, q, q, indices=torch.cat([indices, 0 * indices], -1), attention_mask=mask), wanted(bias=mask & chosen)
    )
    with pytest.raises(redblue.Unsupported, match="sinks.*for each query"):
        call(q, q, q, sinks=torch.zeros(1, 4, 5, 1, dtype=torch.float64))
    ends = torch.tensor([0, 2, 5])
    with pytest.raises(redblue.Unsupported, match="cu_seq_lens_q.*2 packed.*position_ids"):
        call(q, q, q, cu_seq_lens_q=ends, cu_seq_lens_k=ends)
    call(q, q, q, cu_seq_lens_q=ends, cu_seq_lens_k=ends, attention_mask=mask)
