#include "redblue/masks/patterns.hpp"

#include <memory>

#include "redblue/c_api/calls.hpp"
#include "redblue/c_api/structs.hpp"

/// The makers of patterns.

using namespace redblue;
using namespace redblue::c_api;

namespace {

/// A number of a pattern and what it is called.
struct PatternNumber {
  const char* name;
  int64_t value;
};

void hand_over(RunLists rows, index_t n_k, redblue_pattern** pattern) {
  auto result = std::make_unique<redblue_pattern>();
  result->rows = std::make_shared<const RunLists>(std::move(rows));
  result->n_k = n_k;
  *pattern = result.release();
}

/// Makes *pattern of the lists that make() returns, once no number is so large that sums of them overflow.
template <class Make>
redblue_status create_pattern(int64_t n_q, int64_t n_k, std::initializer_list<PatternNumber> numbers,
                              redblue_pattern** pattern, const Make& make) noexcept {
  return guarded([&] {
    require_pointer(pattern, "pattern");
    *pattern = nullptr;
    for (const auto& [name, value] : {PatternNumber{"n_q", n_q}, PatternNumber{"n_k", n_k}})
      if (value < 1 || value > int64_t{1} << 31)
        throw InvalidArgument(fmt::format("{} = {}: patterns are for 1 to 2^31 queries and keys", name, value));
    for (const auto& [name, value] : numbers)
      if (constexpr auto kMost = int64_t{1} << 48; value < -kMost || value > kMost)
        throw InvalidArgument(fmt::format("{} = {} is out of range: at most 2^48 either way", name, value));
    hand_over(make(), n_k, pattern);
  });
}

/// Makes *pattern of two others.
redblue_status join_patterns(const redblue_pattern* a, const redblue_pattern* b, redblue_pattern** pattern,
                             RunLists (*join)(const RunLists&, const RunLists&)) noexcept {
  return guarded([&] {
    require_pointer(pattern, "pattern");
    *pattern = nullptr;
    require_pointer(a, "a");
    require_pointer(b, "b");
    if (a->rows->size() != b->rows->size() || a->n_k != b->n_k)
      throw InvalidArgument(
          fmt::format("a is between {} queries and {} keys, b between {} and {}: give patterns of "
                      "the same sizes",
                      a->rows->size(), a->n_k, b->rows->size(), b->n_k));
    hand_over(join(*a->rows, *b->rows), a->n_k, pattern);
  });
}

}  // namespace

extern "C" {

redblue_status redblue_pattern_csr(int64_t n_q, int64_t n_k, const int64_t* indptr, const int64_t* indices,
                                   redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {}, pattern, [&] {
    require_pointer(indptr, "indptr");
    const int64_t count = indptr[n_q];
    if (count < 0) throw InvalidArgument(fmt::format("indptr ends with {}: it ends with the number of indices", count));
    if (count > 0) require_pointer(indices, "indices");
    return patterns::of_csr({n_q, n_k}, {indptr, static_cast<std::size_t>(n_q) + 1},
                            {indices, static_cast<std::size_t>(count)});
  });
}

redblue_status redblue_pattern_mask(int64_t n_q, int64_t n_k, const uint8_t* seen, redblue_pattern** pattern) {
  return redblue_pattern_blocks(n_q, n_k, 1, 1, seen, pattern);
}

redblue_status redblue_pattern_blocks(int64_t n_q, int64_t n_k, int64_t rows, int64_t cols, const uint8_t* seen,
                                      redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"rows", rows}, {"cols", cols}}, pattern, [&] {
    require_pointer(seen, "seen");
    for (const auto& [name, size] : {PatternNumber{"rows", rows}, PatternNumber{"cols", cols}})
      if (size < 1) throw InvalidArgument(fmt::format("{} = {}: give 1 or more", name, size));
    const auto blocks = static_cast<std::size_t>(ceil_div(n_q, rows) * ceil_div(n_k, cols));
    return patterns::of_blocks({n_q, n_k}, rows, cols, {seen, blocks});
  });
}

redblue_status redblue_pattern_longformer(int64_t n_q, int64_t n_k, int64_t offset, int64_t left, int64_t right,
                                          int64_t globals, int64_t step, redblue_pattern** pattern) {
  return create_pattern(n_q, n_k,
                        {{"offset", offset}, {"left", left}, {"right", right}, {"globals", globals}, {"step", step}},
                        pattern, [&] { return patterns::longformer({n_q, n_k, offset}, left, right, globals, step); });
}

redblue_status redblue_pattern_big_bird(int64_t n_q, int64_t n_k, int64_t offset, int64_t block, int64_t window,
                                        int64_t globals, int64_t randoms, int64_t seed, redblue_pattern** pattern) {
  return create_pattern(
      n_q, n_k, {{"offset", offset}, {"block", block}, {"window", window}, {"globals", globals}, {"randoms", randoms}},
      pattern, [&] { return patterns::big_bird({n_q, n_k, offset}, {block, window, globals, randoms, seed}); });
}

redblue_status redblue_pattern_strided(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride,
                                       redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"offset", offset}, {"stride", stride}}, pattern,
                        [&] { return patterns::strided({n_q, n_k, offset}, stride); });
}

redblue_status redblue_pattern_fixed(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride, int64_t summary,
                                     redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"offset", offset}, {"stride", stride}, {"summary", summary}}, pattern,
                        [&] { return patterns::fixed({n_q, n_k, offset}, stride, summary); });
}

redblue_status redblue_pattern_intersected(const redblue_pattern* a, const redblue_pattern* b,
                                           redblue_pattern** pattern) {
  return join_patterns(a, b, pattern, patterns::intersected);
}

redblue_status redblue_pattern_united(const redblue_pattern* a, const redblue_pattern* b, redblue_pattern** pattern) {
  return join_patterns(a, b, pattern, patterns::united);
}

void redblue_pattern_destroy(redblue_pattern* pattern) { delete pattern; }

}  // extern "C"
