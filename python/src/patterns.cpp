#include "redblue/patterns.hpp"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <span>

#include "module.hpp"
#include "pattern.hpp"
#include "redblue/core/error.hpp"

namespace redblue::python {

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const index_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offset = std::optional<index_t>;
using Made = std::shared_ptr<const NamedPattern>;

template <class T>
std::span<const std::remove_const_t<typename T::Scalar>> span_of(const T& array) {
  return {array.data(), array.size()};
}

/// Beyond this sums of sizes may overflow.
void require_size(const char* name, index_t value, index_t least, index_t most) {
  if (value < least || value > most)
    throw InvalidProblem(fmt::format("{} = {}: give {} to {}", name, value, least, most));
}

patterns::Between between(index_t n_q, index_t n_k, const Offset& offset) {
  constexpr index_t kMost = index_t{1} << 31;
  require_size("n_q", n_q, 1, kMost);
  require_size("n_k", n_k, 1, kMost);
  if (offset) require_size("offset", *offset, -kMost, kMost);
  return {n_q, n_k, offset};
}

Made made(RunLists lists, index_t n_k) {
  return std::make_shared<const NamedPattern>(NamedPattern{std::make_shared<const RunLists>(std::move(lists)), n_k});
}

/// Two patterns of the same sizes.
template <class Join>
Made joined(const NamedPattern& a, const NamedPattern& b, const Join& join) {
  if (a.n_k != b.n_k || a.rows->size() != b.rows->size())
    throw InvalidProblem(
        fmt::format("a pattern of {} queries and {} keys, and one of {} and {}: give patterns of one size",
                    a.rows->size(), a.n_k, b.rows->size(), b.n_k));
  return made(join(*a.rows, *b.rows), a.n_k);
}

}  // namespace

void add_patterns(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NamedPattern>(m, "Pattern", nb::is_weak_referenceable(),
                           "Which keys each query sees. redblue.patterns makes patterns.")
      .def_prop_ro("n_q", [](const NamedPattern& p) { return p.rows->size(); })
      .def_ro("n_k", &NamedPattern::n_k)
      .def_prop_ro("pairs", [](const NamedPattern& p) { return integer_of(count_of(*p.rows)); })
      .def("__or__", [](const NamedPattern& a, const NamedPattern& b) { return joined(a, b, patterns::united); })
      .def("__and__", [](const NamedPattern& a, const NamedPattern& b) { return joined(a, b, patterns::intersected); })
      .def("__repr__", [](const NamedPattern& p) {
        const std::string text = fmt::format("<redblue.Pattern: {} queries, {} keys, {} pairs>", p.rows->size(), p.n_k,
                                             count_of(*p.rows).str());
        return nb::str(text.c_str());
      });
  m.def(
      "pattern_window",
      [](index_t n_q, index_t n_k, Offset offset, index_t left, index_t right, index_t step) {
        return made(patterns::window(between(n_q, n_k, offset), left, right, step), n_k);
      },
      "n_q"_a, "n_k"_a, "offset"_a.none(), "left"_a, "right"_a, "step"_a);
  m.def(
      "pattern_longformer",
      [](index_t n_q, index_t n_k, Offset offset, index_t left, index_t right, index_t globals, index_t step) {
        return made(patterns::longformer(between(n_q, n_k, offset), left, right, globals, step), n_k);
      },
      "n_q"_a, "n_k"_a, "offset"_a.none(), "left"_a, "right"_a, "globals_"_a, "step"_a);
  m.def(
      "pattern_big_bird",
      [](index_t n_q, index_t n_k, Offset offset, index_t block, index_t window, index_t globals, index_t randoms,
         index_t seed) {
        return made(patterns::big_bird(between(n_q, n_k, offset), {block, window, globals, randoms, seed}), n_k);
      },
      "n_q"_a, "n_k"_a, "offset"_a.none(), "block"_a, "window"_a, "globals_"_a, "randoms"_a, "seed"_a);
  m.def(
      "pattern_strided",
      [](index_t n_q, index_t n_k, Offset offset, index_t stride) {
        return made(patterns::strided(between(n_q, n_k, offset), stride), n_k);
      },
      "n_q"_a, "n_k"_a, "offset"_a.none(), "stride"_a);
  m.def(
      "pattern_fixed",
      [](index_t n_q, index_t n_k, Offset offset, index_t stride, index_t summary) {
        return made(patterns::fixed(between(n_q, n_k, offset), stride, summary), n_k);
      },
      "n_q"_a, "n_k"_a, "offset"_a.none(), "stride"_a, "summary"_a);
  m.def(
      "pattern_blocks",
      [](index_t n_q, index_t n_k, index_t rows, index_t cols, const Bytes& seen) {
        return made(patterns::of_blocks(between(n_q, n_k, {}), rows, cols, span_of(seen)), n_k);
      },
      "n_q"_a, "n_k"_a, "rows"_a, "cols"_a, "seen"_a);
  m.def(
      "pattern_csr",
      [](index_t n_q, index_t n_k, const Numbers& indptr, const Numbers& indices) {
        return made(patterns::of_csr(between(n_q, n_k, {}), span_of(indptr), span_of(indices)), n_k);
      },
      "n_q"_a, "n_k"_a, "indptr"_a, "indices"_a);
}

}  // namespace redblue::python
