#include "redblue/problem/called_elsewhere.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/language/nearest.hpp"

namespace redblue {

namespace {

struct Elsewhere {
  std::string_view letters;              ///< of its name there
  std::string_view option, otherwise{};  ///< or value, here, and where the caller has no such option
};
constexpr Elsewhere kElsewhere[] = {
    {"seqlen", "n"},
    {"seqlength", "n"},
    {"sequencelength", "n"},
    {"length", "n"},
    {"tokens", "n"},
    {"seqlenq", "n_q"},
    {"seqlenk", "n_k"},
    {"seqlenkv", "n_k"},
    {"queries", "n_q"},
    {"keys", "n_k"},
    {"headdim", "d"},
    {"headsize", "d"},
    {"dhead", "d"},
    {"dk", "d"},
    {"dmodel", "d"},
    {"headdimv", "d_v"},
    {"nhead", "heads"},
    {"nheads", "heads"},
    {"numheads", "heads"},
    {"nkvheads", "kv_heads"},
    {"numkvheads", "kv_heads"},
    {"batchsize", "batch"},
    {"softmaxscale", "scale"},
    {"smscale", "scale"},
    {"mask", "bias"},
    {"attnmask", "mask", "bias"},
    {"attentionmask", "mask", "bias"},
    {"keypaddingmask", "bias"},
    {"attnbias", "bias"},
    {"attentionbias", "bias"},
    {"iscausal", "causal"},
    {"dropoutp", "dropout"},
    {"windowsize", "window"},
    {"slidingwindow", "window"},
    {"logitcap", "softcap"},
    {"learnablesink", "sinks"},
    {"saux", "sinks"},
    {"cuseqlens", "cu_seqlens_q", "seqlens"},
    {"sram", "memory"},
    {"out", "output"},
    {"in", "input"},
    {"approximation", "approximate"},
    {"fwd", "forward"},
    {"bwd", "backward"},
    {"float64", "f64"},
    {"fp64", "f64"},
    {"double", "f64"},
    {"float32", "f32"},
    {"fp32", "f32"},
    {"float16", "f16"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"bfloat16", "bf16"},
};

}  // namespace

std::vector<std::string_view> called_elsewhere(std::string_view name) {
  const std::string letters = letters_of(name);
  for (const Elsewhere& e : kElsewhere)
    if (e.letters == letters) return e.otherwise.empty() ? std::vector{e.option} : std::vector{e.option, e.otherwise};
  return {};
}

std::string value_choice(std::string_view value, const std::vector<std::string_view>& values) {
  for (const std::string_view here : called_elsewhere(value))
    if (std::ranges::find(values, here) != values.end()) return fmt::format("did you mean {}?", here);
  return choice(value, values);
}

}  // namespace redblue
