#include "redblue/ranks/ownership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "redblue/language/error.hpp"
#include "redblue/language/types.hpp"
#include "redblue/masks/visible.hpp"
#include "redblue/ranks/sight.hpp"

namespace redblue::ranks {
namespace {

/// The i-th of `parts` equal ranges of whole blocks; their sizes differ by one block at most.
Range equal_range(index_t n, index_t whole, index_t i, index_t parts) {
  const auto from = [&](index_t k) {
    return std::min(Words(n), Words(ceil_div(n, whole)) * k / parts * whole).to_index();
  };
  return {from(i), from(i + 1)};
}

Rows rows_of_rank(Ownership kind, index_t n, index_t rank, index_t ranks, index_t block, index_t whole) {
  if (kind == Ownership::contiguous) return Rows::of(equal_range(n, whole, rank, ranks));
  if (kind == Ownership::zig_zag)
    return Rows({equal_range(n, whole, rank, 2 * ranks), equal_range(n, whole, 2 * ranks - 1 - rank, 2 * ranks)});
  std::vector<Range> blocks;
  for (index_t begin = rank * block; begin < n; begin += ranks * block)
    blocks.push_back({begin, std::min(n, begin + block)});
  return Rows(std::move(blocks));
}

Owned owned_documents(const Problem& problem, std::size_t ranks) {
  const Sight sight(problem);
  const std::vector<Document> documents = documents_of(problem);
  std::vector<Words> work;
  work.reserve(documents.size());
  for (const Document& d : documents) work.push_back(sight.pairs(Rows::of(d.queries), Rows::of(d.keys)));
  std::vector<std::size_t> longest_first(documents.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::ranges::stable_sort(longest_first, [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<Words> load(ranks);
  std::vector<std::vector<Range>> queries(ranks), keys(ranks);
  for (const std::size_t k : longest_first) {
    const auto least = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
    load[least] += work[k];
    queries[least].push_back(documents[k].queries);
    keys[least].push_back(documents[k].keys);
  }
  Owned owned;
  for (std::size_t r = 0; r < ranks; ++r) {
    owned.queries.emplace_back(std::move(queries[r]));
    owned.keys.emplace_back(std::move(keys[r]));
  }
  return owned;
}

}  // namespace

Owned owned_rows(const Problem& problem, int ranks, Ownership kind, index_t block, index_t whole) {
  if (ranks < 1) throw InvalidProblem(fmt::format("ranks = {}: give 1 or more", ranks));
  if (kind == Ownership::block_cyclic && block < 1)
    throw InvalidProblem(fmt::format("block = {}: block-cyclic rows are dealt out in blocks of 1 row or more", block));
  if (kind != Ownership::block_cyclic && block != 0)
    throw InvalidProblem(
        fmt::format("block = {}: {} rows have no blocks; block-cyclic rows have", block, name_of(kind)));
  if (kind == Ownership::documents) {
    if (problem.cu_seqlens_q.empty() && problem.cu_seqlens_k.empty())
      throw InvalidProblem(
          "documents lie on one rank each where there are packed sequences: give cu_seqlens_q (the program's "
          "--seqlens)");
    return owned_documents(problem, static_cast<std::size_t>(ranks));
  }
  Owned owned;
  for (int r = 0; r < ranks; ++r) {
    owned.queries.push_back(rows_of_rank(kind, problem.n_q, r, ranks, block, whole));
    owned.keys.push_back(rows_of_rank(kind, problem.n_k, r, ranks, block, whole));
  }
  return owned;
}

}  // namespace redblue::ranks
