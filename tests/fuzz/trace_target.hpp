#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/machines/trace.hpp"

// What the fuzzer of traces runs, and tests/files/corpus_test.cpp over the corpus: read the text, and play whatever was
// accepted, so that a size or place that is wrong shows as a read or write out of bounds.
namespace redblue::fuzz {

/// Every array, of this shape.
inline constexpr Shape kArrayShape{8, 8};

/// Each tile and array in a heap block of exactly its size, and the portable implementations on them.
class Blocks {
 public:
  Blocks() {
    for (auto& a : arrays_) a.assign(static_cast<std::size_t>(kArrayShape.words()), 0.5);
  }
  static std::vector<SlowMatrix> arrays() {
    std::vector<SlowMatrix> list;
    for (std::size_t a = 0; a < kSlowArrays; ++a) list.push_back({static_cast<SlowArray>(a), kArrayShape});
    return list;
  }

  index_t open(SlowArray, Shape s, Layout) {
    shapes_.push_back(s);
    tiles_.emplace_back(static_cast<std::size_t>(s.words()), 0.0);
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  void close(index_t, SlowArray, Shape) {
    tiles_.pop_back();
    shapes_.pop_back();
  }
  void read(const Arg& tile, const Block& b) { copy(view(tile), view(Arg::streaming(b))); }
  void write(const Block& b, const Arg& tile) { copy(view(Arg::streaming(b)), view(tile)); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    std::vector<View<double>> views;
    for (const Arg& a : args) views.push_back(view(a));
    kernel::run(kernel::implementations<double>(Isa::portable), k, std::span<const View<double>>(views));
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    run(k, args);
  }

 private:
  View<double> view(const Arg& a) {
    const bool is_tile = a.kind == Arg::Kind::tile;
    auto& words = is_tile ? tiles_[static_cast<std::size_t>(a.depth)] : arrays_[index_of(a.block.array)];
    const Shape whole = is_tile ? shapes_[static_cast<std::size_t>(a.depth)] : kArrayShape;
    return {words.data() + a.block.row * whole.cols + a.block.col, a.shape(), whole.cols};
  }
  static void copy(const View<double>& to, const View<double>& from) {
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.cols(); ++j) to(i, j) = from(i, j);
  }

  std::array<std::vector<double>, kSlowArrays> arrays_;
  std::vector<std::vector<double>> tiles_;
  std::vector<Shape> shapes_;
};

inline std::string text_of(const machine::Trace& trace) {
  std::ostringstream text;
  machine::write_text(text, trace);
  return text.str();
}

/// Larger tiles are counted and not computed with: a tile of 2^40 rows and no column is legal, and takes a while.
inline bool is_small(const machine::Trace& trace) {
  return std::all_of(trace.operations.begin(), trace.operations.end(),
                     [](const machine::Operation& op) { return std::max(op.shape.rows, op.shape.cols) <= 16; });
}

/// True if the bytes are a trace that runs on arrays of kArrayShape in 512 words. Throws nothing, whatever the bytes.
inline bool accepts_trace(std::span<const std::byte> bytes) {
  try {
    std::istringstream in(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    const machine::Trace trace = machine::read_text(in);
    const std::string text = text_of(trace);
    std::istringstream again(text);
    if (text_of(machine::read_text(again)) != text) std::abort();

    machine::Counting counting;
    machine::replay(trace, counting);
    if (!is_small(trace)) return true;
    Blocks blocks;
    machine::replay(trace, blocks, Blocks::arrays());
    std::vector<double> words(kSlowArrays * static_cast<std::size_t>(kArrayShape.words()), 0.5);
    machine::SlowMemory slow;
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      slow[a] = machine::Storage::matrix(words.data() + a * static_cast<std::size_t>(kArrayShape.words()), kArrayShape);
    static constexpr kernel::Implementations<double> kPortable;
    machine::Ram<double> ram(512, slow, kPortable);
    machine::replay(trace, ram, Blocks::arrays());
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace redblue::fuzz
