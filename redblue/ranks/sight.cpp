#include "redblue/ranks/sight.hpp"

#include <fmt/format.h>

#include "redblue/language/error.hpp"

namespace redblue::ranks {
namespace {

void require_shareable(const Problem& p) {
  const auto refuse = [](bool asked, std::string_view what, std::string_view instead) {
    if (asked) throw Unsupported(fmt::format("ranks do not share {}; {}", what, instead));
  };
  refuse(p.op != Operation::forward && p.op != Operation::backward, fmt::format("operation {}", name_of(p.op)),
         "they share forward and backward");
  refuse(p.approximation != nullptr, "approximations", "ask for exact attention");
  refuse(!p.patterns.empty(), "patterns", "they share causal masks, windows, prefixes and packed sequences");
  refuse(p.dilation != 1, "dilated windows", "ask for a window with dilation = 1");
  refuse(!p.seqused_q.empty() || !p.seqused_k.empty(), "padding (seqused_q, seqused_k)",
         "leave out what is padding, and give packed sequences (cu_seqlens_q, cu_seqlens_k)");
  refuse(p.bias_gradient && (*p.bias)[3] == 1 && p.n_k > 1, "the gradient of a bias that is one word for all keys",
         "it is exp(sink - lse) D of each query, and 0 without sinks: leave it out");
  refuse(p.dropout_from.has_value(), "dropout of a part (dropout_from)", "ask for that of the whole");
  refuse(!p.has_statistics(), "score functions without lse", "ask for the softmax");
  refuse(p.lse_gradient, "the gradient of lse (lse_gradient)",
         "give dO alone: they send dO and O home, from which D is formed there");
  refuse(p.accumulate, "accumulating attention", "ask for all keys at once");
  refuse(p.op == Operation::backward && !p.forward_given, "a gradient whose forward pass runs first",
         "run the forward pass over the same ranks, and give its o and lse");
}

}  // namespace

std::vector<Document> documents_of(const Problem& problem) {
  if (problem.cu_seqlens_q.empty() && problem.cu_seqlens_k.empty()) return {{{0, problem.n_q}, {0, problem.n_k}}};
  const auto& q = problem.cu_seqlens_q.empty() ? problem.cu_seqlens_k : problem.cu_seqlens_q;
  const auto& k = problem.cu_seqlens_k.empty() ? problem.cu_seqlens_q : problem.cu_seqlens_k;
  std::vector<Document> documents;
  documents.reserve(q.size());
  for (std::size_t s = 0; s + 1 < q.size(); ++s) documents.push_back({{q[s], q[s + 1]}, {k[s], k[s + 1]}});
  return documents;
}

Sight::Sight(const Problem& problem)
    : problem_(problem), whole_(problem.cu_seqlens_q.empty() && problem.cu_seqlens_k.empty()) {
  problem.validate();
  require_shareable(problem);
  documents_ = documents_of(problem);
  problem_.cu_seqlens_q.clear();
  problem_.cu_seqlens_k.clear();
  problem_.sinks = false;  // they are one more key, which no part has; lse of a gradient holds them
  problem_.sinks_gradient = false;
  problem_.lse_required = false;
  std::erase_if(documents_, [](const Document& d) { return d.queries.size() == 0 || d.keys.size() == 0; });
  for (const Document& d : documents_) {
    Problem one = problem_;
    one.heads = 1;
    one.kv_heads.reset();
    one.bias.reset();
    one.n_q = d.queries.size();
    one.n_k = d.keys.size();
    pairs_.push_back({one.mask(), one.n_q, one.n_k});
  }
}

template <class F>
void Sight::for_ranges(const Rows& queries, const Rows& keys, const F& f) const {
  for (std::size_t k = 0; k < documents_.size(); ++k) {
    const Document& d = documents_[k];
    const Rows q = intersection(queries, Rows::of(d.queries));
    if (q.empty()) continue;
    const Rows c = intersection(keys, Rows::of(d.keys));
    for (const Range& rows : q.ranges())
      for (const Range& cols : c.ranges()) {
        const Pairs all{pairs_[k].mask.from(rows.begin - d.queries.begin, cols.begin - d.keys.begin), rows.size(),
                        cols.size()};
        const Range seeing = all.rows_of({0, all.n_k});
        if (seeing.size() == 0) continue;
        const Range seen = all.keys_of(seeing);
        if (seen.size() == 0) continue;
        f(d, seeing.shifted(rows.begin), seen.shifted(cols.begin), redblue::part_of(all, seeing, seen));
      }
  }
}

Words Sight::pairs(const Rows& queries, const Rows& keys) const {
  Words sum;
  for_ranges(queries, keys, [&](const Document&, Range, Range, const Pairs& part) { sum += part.count(); });
  return sum;
}

Rows Sight::keys_seen(const Rows& queries, const Rows& keys) const {
  std::vector<Range> seen;
  for_ranges(queries, keys, [&](const Document&, Range, Range cols, const Pairs&) { seen.push_back(cols); });
  return Rows(std::move(seen));
}

Rows Sight::queries_seeing(const Rows& queries, const Rows& keys) const {
  std::vector<Range> seeing;
  for_ranges(queries, keys, [&](const Document&, Range rows, Range, const Pairs&) { seeing.push_back(rows); });
  return Rows(std::move(seeing));
}

std::vector<Part> Sight::parts(const Rows& queries, const Rows& keys) const {
  std::vector<Part> list;
  for_ranges(queries, keys, [&](const Document& d, Range rows, Range cols, const Pairs& pairs) {
    Part part{rows, cols, problem_};
    Problem& p = part.problem;
    p.accumulate = true;
    p.n_q = rows.size();
    p.n_k = cols.size();
    const index_t offset = problem_.causal_offset.value_or(d.keys.size() - d.queries.size());
    p.causal_offset = offset + (rows.begin - d.queries.begin) - (cols.begin - d.keys.begin);
    p.prefix = std::clamp<index_t>(problem_.prefix - (cols.begin - d.keys.begin), 0, p.n_k);
    if (pairs.mask.full()) {
      p.causal = false;
      p.window_left.reset();
      p.window_right.reset();
      p.prefix = 0;
      if (!p.alibi) p.causal_offset.reset();
    }
    if (!p.causal && !p.window_right) p.prefix = 0;
    if (p.bias) {  // where it has one word for all queries, or all keys, so has a part
      if ((*p.bias)[2] != 1) (*p.bias)[2] = p.n_q;
      if ((*p.bias)[3] != 1) (*p.bias)[3] = p.n_k;
    }
    list.push_back(std::move(part));
  });
  return list;
}

}  // namespace redblue::ranks
