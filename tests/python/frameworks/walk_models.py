"""Each tiny model of transformers under attn_implementation="redblue" beside its own eager attention."""

import contextlib
import copy
import inspect
import warnings

import torch
import transformers
from tiny_models import NotMade, build, classes_of, parameters_of, require_small, spread, tiny_config

import redblue
import redblue.torch

BATCH, LENGTH, NEW = 2, 11, 6
TOLERANCE = 2e-3  # of the largest number of a tensor; fp32 through a few layers


def _image(config, model):
    parts = [config, *(getattr(config, n, None) for n in ("vision_config", "encoder_config", "backbone_config", "vision"))]
    get = lambda name, default: next((getattr(c, name) for c in parts if getattr(c, name, None) is not None), default)
    size, channels = get("image_size", 32), get("num_channels", 3)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2] if isinstance(size, (list, tuple)) else (32, 32)
    return torch.randn(BATCH, channels if isinstance(channels, int) else 3, height, width)


def _sound(config, name):
    """Sound as models take it: [batch, time, features], [batch, features, time] or [batch, time]."""
    mel = [getattr(config, n) for n in ("num_mel_bins", "feature_size", "input_feat_per_channel", "hidden_size") if isinstance(getattr(config, n, None), int)]
    for sub in ("audio_config", "encoder_config"):
        mel += [getattr(getattr(config, sub, None), n) for n in ("num_mel_bins", "feature_size") if isinstance(getattr(getattr(config, sub, None), n, None), int)]
    time = 2 * next((getattr(config, n) for n in ("max_source_positions",) if isinstance(getattr(config, n, None), int)), 12)
    if name == "input_values":
        yield torch.randn(BATCH, 1200)
    for features in dict.fromkeys([*mel, 16, 80]):
        yield torch.randn(BATCH, 24, features)
        yield torch.randn(BATCH, features, time)
        yield torch.randn(BATCH, features, 24)
    if name == "input_values":
        yield torch.randn(BATCH, 1, 1200)


def _texts(config, names):
    given = {}
    if "input_ids" in names:
        given["input_ids"] = torch.randint(4, 100, (BATCH, LENGTH))
    if "bbox" in names:
        given["bbox"] = torch.randint(0, 20, (BATCH, LENGTH, 2)).repeat(1, 1, 2) + torch.tensor([0, 0, 5, 5])
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = torch.randint(4, 100, (BATCH, LENGTH - 4))
    return given


def candidates(config, model):
    """Arguments that the model's forward may take: tokens, images or sound, by their names."""
    names = parameters_of(model)
    torch.manual_seed(3)
    text = _texts(config, names)
    if "input_ids" in text:
        yield text
    for name in ("input_features", "input_values"):
        if name in names:
            for sound in _sound(config, name):
                if "input_features_mask" in names:
                    yield {name: sound, "input_features_mask": torch.ones(sound.shape[:2], dtype=torch.long)}
                yield {**{n: x for n, x in text.items() if n != "input_ids"}, name: sound}
                if "input_ids" in text:
                    yield {**text, name: sound}
    if "pixel_values" in names:
        image = _image(config, model)
        for pixels in (image, image[:, None].expand(-1, getattr(config, "num_frames", 2) or 2, -1, -1, -1).contiguous()):
            yield {"pixel_values": pixels}
            if text:
                yield {**text, "pixel_values": pixels}
    if "grid_thw" in names:  # patches of an image, as vision encoders take them
        get = lambda *of: next((getattr(config, n) for n in of if isinstance(getattr(config, n, None), int)), 1)
        features = get("in_channels", "in_chans", "num_channels") * get("temporal_patch_size") * get("patch_size") ** 2
        for name in ("hidden_states", "pixel_values"):
            if name in names:
                yield {name: torch.randn(32, features), "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]])}
    for name in ("inputs_embeds", "hidden_states", "query_embeds"):
        if name in names and not text:
            yield {name: torch.randn(BATCH, LENGTH, getattr(config, "hidden_size", 32))}


def _padding(right):
    keep = torch.ones(BATCH, LENGTH, dtype=torch.long)
    if right:
        keep[0, -3:] = 0
    else:
        keep[0, :3] = 0
    return keep


def scenarios(config, model, inputs):
    """Names of ways to call the model, each with its arguments and the real tokens."""
    names = parameters_of(model)
    ids = inputs.get("input_ids")
    yield "plain", inputs, {}
    if ids is None or "attention_mask" not in names:
        return
    for side in ("right", "left"):
        keep = _padding(side == "right")
        padded = {**inputs, "attention_mask": keep}
        real = {LENGTH: keep.bool()}
        if "decoder_input_ids" in inputs and "decoder_attention_mask" in names:
            m = inputs["decoder_input_ids"].shape[1]
            short = torch.ones(BATCH, m, dtype=torch.long)
            short[1, :2] = 0
            short = short if side == "left" else short.flip(1)
            padded["decoder_attention_mask"] = short
            real[m] = short.bool()
        yield side, padded, real
    if "position_ids" in names and "decoder_input_ids" not in inputs:
        positions = torch.cat([torch.arange(4), torch.arange(LENGTH - 4)])[None].expand(BATCH, -1)
        yield "packed", {**inputs, "position_ids": positions}, {}


def _tensors(found, prefix=""):
    if isinstance(found, torch.Tensor):
        if found.is_floating_point():
            yield prefix, found
    elif isinstance(found, dict):
        for name, x in found.items():
            if "past_key_values" not in str(name) and "cache" not in str(name) and name != "attentions":
                yield from _tensors(x, f"{prefix}.{name}")
    elif isinstance(found, (list, tuple)):
        for i, x in enumerate(found):
            yield from _tensors(x, f"{prefix}.{i}")


def rows_of(found, real):
    """Each tensor of floats of an output at the rows of real tokens."""
    return {name: x[real[x.shape[1]]] if x.dim() > 2 and x.shape[0] == BATCH and x.shape[1] in real else x for name, x in _tensors(found)}


def forward(model, given, real):
    torch.manual_seed(4)
    with torch.no_grad():
        return rows_of(model(**given, return_dict=True) if "return_dict" in parameters_of(model) else model(**given), real)


def gradients(model, given, real):
    torch.manual_seed(4)
    model.zero_grad()
    rows = rows_of(model(**given), real)
    if any(x.isnan().any() for x in rows.values()):
        raise NotMade("NaN")
    loss = sum((x * torch.linspace(-1, 1, x.numel()).reshape(x.shape)).mean() for x in rows.values() if x.requires_grad)
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def continued(model, given):
    """Tokens in two calls with a cache, the second one of several tokens."""
    ids, keep = given["input_ids"], given["attention_mask"]
    torch.manual_seed(4)
    with torch.no_grad():
        first = model(input_ids=ids[:, :6], attention_mask=keep[:, :6], use_cache=True)
        if getattr(first, "past_key_values", None) is None:
            raise NotMade("no cache")
        second = model(input_ids=ids[:, 6:], attention_mask=keep, past_key_values=first.past_key_values, use_cache=True)
    return rows_of(second, {LENGTH - 6: keep[:, 6:].bool()})


def generated(model, given, cache):
    torch.manual_seed(4)
    arguments = {n: x for n, x in given.items() if n not in ("decoder_input_ids", "decoder_attention_mask")}
    found = model.generate(
        **arguments, cache_implementation=cache, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, num_beams=1, disable_compile=True,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    return {f"step {i}": x for i, x in enumerate(found.logits)}


def same_weights(model, other):
    model.load_state_dict(other.state_dict())
    for mine, its in zip(model.buffers(), other.buffers()):  # those that no state has, too
        mine.copy_(its)
    return model


class Different(Exception):
    pass


def differs(got, want):
    try:
        require_same(got, want)
    except Different as e:
        return str(e)
    return ""


def require_same(got, want):
    if got.keys() != want.keys():
        raise Different(f"outputs {sorted(got)} and {sorted(want)}")
    largest = max((w[w.isfinite()].abs().max().item() for w in want.values() if w.isfinite().any()), default=0)
    for name, w in want.items():
        g = got[name]
        if g.shape != w.shape:
            raise Different(f"{name} is {list(g.shape)}, by eager {list(w.shape)}")
        finite = w.isfinite()
        if not g[finite].isfinite().all() or not torch.equal(g.isinf(), w.isinf()) and not w.isnan().any():
            raise Different(f"{name} has other infinities or NaN")
        if finite.any():
            error = (g[finite] - w[finite]).abs().max().item()
            if error > TOLERANCE * max(1e-3 * largest, w[finite].abs().max().item()):
                raise Different(f"{name} errs by {error:.2g} of {w[finite].abs().max().item():.2g}")


@contextlib.contextmanager
def calls_of_redblue():
    """Counts how often redblue's attention is called."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    redblue.torch.register_transformers()
    function, count = ALL_ATTENTION_FUNCTIONS["redblue"], []

    def counted(*arguments, **options):
        count.append(1)
        return function(*arguments, **options)

    ALL_ATTENTION_FUNCTIONS.register("redblue", counted)
    try:
        yield count
    finally:
        ALL_ATTENTION_FUNCTIONS.register("redblue", function)


def made(model_type, classes):
    """The tiny configuration, the class, the model and inputs of the first of these classes that can be made."""
    reasons = []
    for keep in KEPT:
        for model_class in classes:
            try:
                config = tiny_config(model_type, keep)
                require_small(config, model_class)
                model = build(config, model_class, "eager")
                spread(model)
            except Exception as e:  # whatever a model of another's raises
                reasons.append(f"{model_class.__name__}: {one_line(e)}")
                continue
            tried = []
            for given in candidates(config, model):
                try:
                    if forward(model, given, {}):
                        return config, model_class, model, given
                except Exception as e:
                    tried.append(f"{model_class.__name__}: {one_line(e)}")
            reasons.append(tried[-1] if tried else f"{model_class.__name__} takes {', '.join(list(parameters_of(model))[:4])}")
    raise NotMade(reasons[0])


def one_line(e):
    return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"


#: Fields that stay as they are, tried one after another. "sections": rotary positions have sections that no field names;
#: "tokens": special tokens that are missing become numbers.
KEPT = ((), ("sections",), ("tokens",), ("patch_size", "image_size", "img_size"), ("hidden_sizes", "embed_dim", "depths", "num_heads", "depth"))


def walk(model_type):
    """[(class, scenario, "same" | "refused" | "own" | "different" | "fails" | "not made" | "eager fails", text)]"""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    groups = classes_of(model_type)
    if not groups:
        return [("", "", "not made", "no class of a model has this configuration")]
    found = []
    for names in groups:
        try:
            found += _walk_class(*made(model_type, names))
        except NotMade as e:
            found.append((names[0].__name__, "", "not made", str(e)))
    return found


def _walk_class(config, model_class, eager, inputs):
    found, name = [], model_class.__name__
    with calls_of_redblue() as count:
        try:
            model = build(config, model_class, "redblue")
        except Exception as e:
            return [(name, "", "refused" if isinstance(e, redblue.Unsupported) else "fails", one_line(e))]
        same_weights(model, eager)

        def compare(scenario, run):
            try:
                want = run(eager)
                if all(w.isnan().any() for w in want.values()):
                    raise NotMade("NaN")
            except NotMade as e:
                if str(e) == "NaN":
                    found.append((name, scenario, "eager fails", "its outputs have NaN"))
                return
            except Exception as e:
                found.append((name, scenario, "eager fails", one_line(e)))
                return
            count.clear()
            try:
                got = run(model)
                require_same(got, want)
                found.append((name, scenario, "same" if count else "own", ""))
            except Different as e:
                again = differs(run(eager), want) or differs(run(same_weights(build(config, model_class, "eager"), eager)), want)
                found.append((name, scenario, "eager fails" if again else "different", f"not the same twice: {again}" if again else str(e)))
            except (redblue.Unsupported, redblue.InvalidProblem) as e:
                found.append((name, scenario, "refused", str(e).splitlines()[0]))
            except Exception as e:
                found.append((name, scenario, "fails", one_line(e)))

        last = {}
        for scenario, given, real in scenarios(config, model, inputs):
            last[scenario] = given
            compare(scenario, lambda m, given=given, real=real: forward(m, copy.copy(given), real))
            if scenario == "left" or (scenario == "plain" and "input_ids" not in given):
                compare(f"{scenario} gradients", lambda m, given=given, real=real: gradients(m, copy.copy(given), real))
        if model.can_generate() and ("input_ids" in inputs or "input_features" in inputs):
            side = "left" if "left" in last else "plain"
            if side == "left" and "decoder_input_ids" not in inputs and len(inputs) == 1:
                compare("continued", lambda m: continued(m, last["left"]))
            for cache in ("dynamic", "static"):
                compare(f"{cache} cache", lambda m, cache=cache: generated(m, last[side], cache))
    return found
