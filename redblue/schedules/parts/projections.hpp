#pragma once
#include <utility>

#include "redblue/schedules/parts/gemm.hpp"

/// Products before and after attention: they project its operands, and carry its gradients back to the sources.
namespace redblue::schedule {

/// C = A B by gemm, with the costs that a schedule of several phases needs.
struct Product {
  SlowMatrix C;
  Factor A, B;
  index_t Multiples::* row_step = nullptr;  ///< what the rows of C are: queries, keys or features
  index_t Multiples::* col_step = nullptr;
  Entries entries{};  ///< of A

  index_t m() const { return C.shape.rows; }
  index_t k() const { return A.cols(); }
  index_t n() const { return C.shape.cols; }

  GemmTiling smallest(const Multiples& s) const {
    return {smallest_tile(m(), s.*row_step), smallest_tile(n(), s.*col_step)};
  }
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits) const {
    const Multiples& s = limits.multiple;
    return cost().choose(x, limits, s.*row_step, s.*col_step);
  }
  GemmCost cost() const { return {C.array, A.matrix.array, B.matrix.array, m(), k(), n(), entries}; }
  Phase phase(const Sizes& x, GemmTiling t) const { return cost().phase(x, t); }
  Io io(GemmTiling t) const { return cost().io(t); }
  Words macs() const { return cost().macs(); }
  template <class M>
  void run(M& machine, const Residence& fast, GemmTiling t) const {
    gemm(machine, fast, C, A, B, t, entries);
  }
};

/// S = A1 X: scores are then scale S A2^T.
template <class Operands>
Product query_projection(const Operands& x) {
  return {x.S, {x.A1}, {x.X}, &Multiples::query, &Multiples::feature};
}
/// h = A3 Y: the values.
template <class Operands>
Product value_projection(const Operands& x) {
  return {x.h, {x.A3}, {x.Y}, &Multiples::key, &Multiples::feature};
}

/// The tile sizes of both.
inline constexpr std::array kProjectionTileSizes{TileSizeRange{"S.b1", &Sizes::n_q}, TileSizeRange{"S.b2", &Sizes::d},
                                                 TileSizeRange{"h.b1", &Sizes::n_k},
                                                 TileSizeRange{"h.b2", &Sizes::d_v}};

/// The arrays of a schedule of plain attention, and what they are called where Q, K and V are projections.
using Renaming = std::pair<SlowArray, SlowArray>;
inline constexpr std::array kProjected{Renaming{SlowArray::Q, SlowArray::A1X}, Renaming{SlowArray::K, SlowArray::A2},
                                       Renaming{SlowArray::V, SlowArray::h}};

template <std::size_t N>
Io renamed(Io io, const std::array<Renaming, N>& names) {
  for (const auto& [from, to] : names) {
    io.read(to, std::exchange(io.reads[index_of(from)], 0));
    io.write(to, std::exchange(io.writes[index_of(from)], 0));
  }
  return io;
}
/// The sizes and the limits that the schedule of plain attention sees.
template <std::size_t N>
Sizes renamed(Sizes x, const std::array<Renaming, N>& names) {
  for (const auto& [from, to] : names) x.fast.width[index_of(from)] = x.fast.width[index_of(to)];
  return x;
}
template <std::size_t N>
Limits renamed(Limits limits, const std::array<Renaming, N>& names) {
  for (const auto& [from, to] : names) {
    limits.price.read[index_of(from)] = limits.price.reading(to);
    limits.price.write[index_of(from)] = limits.price.writing(to);
  }
  return limits;
}

// ---- Several products, one after another ----

template <std::size_t N>
std::array<GemmTiling, N> smallest_of(const std::array<Product, N>& products, const Multiples& m) {
  std::array<GemmTiling, N> tiles;
  for (std::size_t i = 0; i < N; ++i) tiles[i] = products[i].smallest(m);
  return tiles;
}
template <std::size_t N>
std::optional<std::array<GemmTiling, N>> choose_all(const Sizes& x, const std::array<Product, N>& products,
                                                    const Limits& limits) {
  std::array<GemmTiling, N> tiles;
  for (std::size_t i = 0; i < N; ++i) {
    const auto best = products[i].choose(x, limits);
    if (!best) return std::nullopt;
    tiles[i] = *best;
  }
  return tiles;
}
template <std::size_t N>
void visit_products(const auto& tile_size, const std::array<TileSizeRange, 2 * N>& ranges,
                    std::array<GemmTiling, N>& t) {
  for (std::size_t i = 0; i < N; ++i) {
    tile_size(ranges[2 * i], t[i].b1);
    tile_size(ranges[2 * i + 1], t[i].b2);
  }
}
template <std::size_t N>
void add_phases(std::vector<Phase>& phases, const Sizes& x, const std::array<Product, N>& products,
                const std::array<GemmTiling, N>& t) {
  for (std::size_t i = 0; i < N; ++i) phases.push_back(products[i].phase(x, t[i]));
}
template <std::size_t N>
Io io_of(const std::array<Product, N>& products, const std::array<GemmTiling, N>& t) {
  Io io;
  for (std::size_t i = 0; i < N; ++i) io = io + products[i].io(t[i]);
  return io;
}
template <std::size_t N>
Words macs_of(const std::array<Product, N>& products) {
  Words macs;
  for (const Product& p : products) macs += p.macs();
  return macs;
}
template <class M, std::size_t N>
void run_all(M& m, const Residence& fast, const std::array<Product, N>& products, const std::array<GemmTiling, N>& t) {
  for (std::size_t i = 0; i < N; ++i) products[i].run(m, fast, t[i]);
}

}  // namespace redblue::schedule
