"""The module flash_attn that redblue.install_flash_attn() makes."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import redblue  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
FUNCTIONS = [
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
]  # fmt: skip


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    yield
    redblue.uninstall_flash_attn()


def found():
    return [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]


def test_the_module_is_there_until_it_is_taken_back():
    assert not found()
    redblue.install_flash_attn()
    import flash_attn
    from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input  # noqa: F401
    from flash_attn.flash_attn_interface import flash_attn_func

    assert flash_attn_func is redblue.flash_attn_func and flash_attn.__version__ >= "2.3.3"
    assert importlib.util.find_spec("flash_attn") is flash_attn.__spec__
    for name in FUNCTIONS:
        assert getattr(flash_attn, name) is getattr(flash_attn.flash_attn_interface, name) is getattr(redblue, name)
    for name in ("flash_attn.layers.rotary", "flash_attn.ops", "flash_attn.cute"):
        with pytest.raises(ModuleNotFoundError, match="flash_attn"):
            importlib.import_module(name)
    redblue.uninstall_flash_attn()
    assert not found()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn")
    redblue.uninstall_flash_attn()


def test_blocks():
    with redblue.install_flash_attn():
        with redblue.install_flash_attn():
            pass
        assert found()
    assert not found()
    redblue.install_flash_attn()
    with pytest.raises(ValueError), redblue.install_flash_attn():
        raise ValueError
    assert found()


def test_another_flash_attn_is_not_replaced(monkeypatch):
    real = types.ModuleType("flash_attn")
    real.__file__ = "/somewhere/flash_attn/__init__.py"
    monkeypatch.setitem(sys.modules, "flash_attn", real)
    with pytest.raises(redblue.Unsupported, match="imported already, from /somewhere/flash_attn/__init__.py"):
        redblue.install_flash_attn()
    redblue.uninstall_flash_attn()
    assert sys.modules["flash_attn"] is real and found() == ["flash_attn"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_stand_in_flash_attentions_order(name):
    """Of flash-attention 2.8.3; what only redblue has stands behind."""
    usual = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs"
    lengths = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
    wanted = {
        "flash_attn_func": f"q k v {usual}",
        "flash_attn_kvpacked_func": f"q kv {usual}",
        "flash_attn_qkvpacked_func": f"qkv {usual}",
        "flash_attn_varlen_func": f"q k v {lengths} {usual} block_table",
        "flash_attn_varlen_kvpacked_func": f"q kv {lengths} {usual}",
        "flash_attn_varlen_qkvpacked_func": f"qkv cu_seqlens max_seqlen {usual}",
        "flash_attn_with_kvcache": "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad block_table "
        "softmax_scale causal window_size softcap rotary_interleaved alibi_slopes num_splits return_softmax_lse",
    }[name].split()
    assert list(inspect.signature(getattr(redblue, name)).parameters)[: len(wanted)] == wanted


def test_padding_comes_off_and_back():
    with redblue.install_flash_attn():
        from flash_attn.bert_padding import index_first_axis, index_put_first_axis, pad_input, unpad_input
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    x = torch.randn(3, 4, 2, 5, dtype=torch.float64, requires_grad=True)
    tokens, indices, starts, longest, used = unpad_input(x, mask)
    torch.testing.assert_close(tokens, x[mask.bool()])
    assert indices.tolist() == [0, 1, 4, 5, 6, 7, 11] and starts.tolist() == [0, 2, 6, 7] and longest == 4
    assert used.tolist() == [2, 4, 1] and starts.dtype == used.dtype == torch.int32 and isinstance(longest, int)
    torch.testing.assert_close(pad_input(tokens, indices, 3, 4), x * mask[..., None, None])
    torch.autograd.gradcheck(lambda x: pad_input(unpad_input(x, mask)[0], indices, 3, 4), (x,))
    unused = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    *_, starts, _, used = unpad_input(x, mask, unused)
    assert starts.tolist() == [0, 3, 7, 8] and used.tolist() == [2, 4, 1]
    for kind in (torch.bool, torch.int32):
        assert unpad_input(x, mask.to(kind), unused.to(kind))[2].tolist() == [0, 3, 7, 8]
    rows = index_first_axis(x.flatten(0, 1), torch.tensor([3, 1]))
    torch.testing.assert_close(index_put_first_axis(rows, torch.tensor([3, 1]), 12)[3], x[0, 3])


def test_a_model_that_imports_it_computes_what_attention_computes():
    text = """
from flash_attn import flash_attn_func, flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input
def attend(q, k, v, mask):
    if mask is None:
        return flash_attn_func(q, k, v, causal=True)
    batch, n = mask.shape
    (q, indices, starts, longest, *_), (k, *_), (v, *_) = (unpad_input(x, mask) for x in (q, k, v))
    return pad_input(flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=True), indices, batch, n)
"""
    model = types.ModuleType("a_model")
    with redblue.install_flash_attn():
        exec(text, model.__dict__)
    q, k, v = (torch.randn(2, 6, 3, 8, requires_grad=True) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    torch.testing.assert_close(model.attend(q, k, v, None), want)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    o = model.attend(q, k, v, mask)
    torch.testing.assert_close(o, want * mask[..., None, None])
    (given,) = torch.autograd.grad(o.square().sum(), q)
    (wanted,) = torch.autograd.grad((want * mask[..., None, None]).square().sum(), q)
    torch.testing.assert_close(given, wanted)


def test_transformers_is_not_misled():
    """It asks for metadata of an installed package and for CUDA: its own flash_attention_2 stays away, and nothing breaks."""
    utils = pytest.importorskip("transformers.utils")
    if torch.cuda.is_available():
        pytest.skip("there transformers asks the same of its own flash-attention")
    utils.is_flash_attn_2_available.cache_clear()
    with redblue.install_flash_attn():
        assert not utils.is_flash_attn_2_available()
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("flash_attn")
    utils.is_flash_attn_2_available.cache_clear()
