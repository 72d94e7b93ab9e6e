#include "redblue/problem/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "redblue/problem/problem.hpp"

namespace redblue {

std::string mask_text(const Problem& p) {
  std::string text = p.causal ? ", causal" : "";
  const auto edge = [](const std::optional<index_t>& keys) { return keys.value_or(-1); };
  if (p.window_left || p.window_right) text += fmt::format(", window {},{}", edge(p.window_left), edge(p.window_right));
  if (p.prefix > 0) text += fmt::format(", prefix {}", p.prefix);
  if (p.dilation > 1) text += fmt::format(", dilation {}", p.dilation);
  if (p.moves_diagonal()) text += fmt::format(", offset {}", *p.causal_offset);
  if (!p.cu_seqlens_q.empty()) text += fmt::format(", {} packed sequences", p.cu_seqlens_q.size() - 1);
  if (!p.seqused_q.empty() || !p.seqused_k.empty()) text += ", padded";
  if (p.patterns.size() > 1) text += fmt::format(", {} patterns", p.patterns.size());
  if (p.patterns.size() == 1) {
    const double pairs = count_of(p.patterns[0]).to_double();
    text += fmt::format(", pattern of {:.3g} % of the pairs",
                        100 * pairs / static_cast<double>(p.n_q) / static_cast<double>(p.n_k));
  }
  if (p.order != PatternOrder::natural && p.may_reorder()) text += " " + phrase(p.order);
  if (p.accumulate) text += ", outputs given and added to";
  if (p.bias) text += fmt::format(", bias [{}]", fmt::join(*p.bias, ", "));
  if (p.bias_direction) text += " that moves";
  if (p.alibi) text += ", ALiBi";
  if (p.softcap > 0) text += fmt::format(", softcap {}", p.softcap);
  if (p.sinks) text += ", sinks";
  if (p.sinks_direction) text += " that move";
  if (p.lse_gradient) text += ", gradient of lse";
  if (p.dropout > 0) text += fmt::format(", dropout {} seed {}", p.dropout, p.seed);
  return text;
}

}  // namespace redblue
