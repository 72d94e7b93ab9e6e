#include "redblue/patterns.hpp"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "module.hpp"
#include "pattern.hpp"
#include "redblue/problem.hpp"

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

/// For operators whose other side is no pattern.
Made refuse_other(const NamedPattern& /*pattern*/, const nb::object& other) {
  throw nb::type_error(fmt::format("a pattern and a {}: give two patterns; redblue.patterns.mask(seen) makes one of an "
                                   "array of bool",
                                   nb::type_name(other.type()).c_str())
                           .c_str());
}

/// What pickle and copy keep: the sizes, how the pattern is given, and for neighbours with the same keys their number
/// and their runs, as numbers one after another.
nb::bytes state_of(const NamedPattern& p) {
  const PatternIndex& index = p.rows->index();
  std::vector<index_t> numbers{p.n_k, static_cast<index_t>(index.kind), index.rows, index.cols};
  p.rows->for_groups([&](Range rows, std::span<const Range> runs) {
    numbers.insert(numbers.end(), {rows.size(), std::ssize(runs)});
    for (const Range& run : runs) numbers.insert(numbers.end(), {run.begin, run.end});
  });
  return nb::bytes(numbers.data(), numbers.size() * sizeof(index_t));
}
NamedPattern pattern_from(const nb::bytes& state) {
  std::vector<index_t> numbers(state.size() / sizeof(index_t));
  std::memcpy(numbers.data(), state.data(), numbers.size() * sizeof(index_t));
  std::size_t at = 0;
  const auto next = [&] {
    if (at == numbers.size()) throw InvalidProblem("the state of a pattern is cut off: pickle it again");
    return numbers[at++];
  };
  const index_t n_k = next();
  PatternIndex index{.kind = static_cast<PatternIndex::Kind>(next())};
  index.rows = next();
  index.cols = next();
  RunLists rows;
  while (at < numbers.size()) {
    const index_t count = next();
    std::vector<Range> runs(static_cast<std::size_t>(next()));
    for (Range& run : runs) {
      run.begin = next();
      run.end = next();
    }
    rows.append(count, runs);
  }
  rows.set_index(index);
  return {std::make_shared<const RunLists>(std::move(rows)), n_k};
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
      .def("__or__", &refuse_other)
      .def("__and__", &refuse_other)
      .def("__getstate__", state_of)
      .def("__setstate__", [](NamedPattern& p, const nb::bytes& state) { new (&p) NamedPattern(pattern_from(state)); })
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
