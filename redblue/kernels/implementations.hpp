#pragma once
#include <stdexcept>

#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/kernels/second.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/language/dtype.hpp"

/// Faster implementations of kernels: one table per instruction set and word type, chosen at run time. The portable
/// implementation defines what a kernel does; docs/kernels.md says how the others are built.
namespace redblue::kernel {

namespace detail {
template <class T, class K>
struct Slot {
  Implementation<T, K> implementation = nullptr;
};
template <class T, class... K>
struct Slots : Slot<T, K>... {};
/// The kernels of this room that may have a faster implementation. Another brings its own, as a static member
/// `template <class T> Implementation<T, K> implementation(Isa)`.
template <class T>
using AllSlots =
    Slots<T, OnlineAttention, SoftmaxInit, SoftmaxFinish, KeyGradients, Gemm, GemmOver, Scores, OnlineSoftmax, Weights,
          WeightsAccumulate, BlockSoftmax, ScoreGradient, ValueGradients, RowDots, DivideRows, Scale, Copy, AddRowSums,
          MovingWeights, SubtractScaledRows, RowDotsAndRest, ThroughSoftcap, SecondGradients>;
}  // namespace detail

/// Rows of f16 or bf16 words, side by side, to T and back, rounded to nearest even. Null: word by word.
template <class T>
struct RowConversion {
  void (*widen)(DType from, const std::uint16_t* in, T* out, index_t words) = nullptr;
  void (*narrow)(DType to, const T* in, std::uint16_t* out, index_t words) = nullptr;
};

/// What a machine has to know of implementations to lay out tiles for them, whatever their word type.
struct ImplementationTraits {
  Isa isa = Isa::portable;
  index_t lanes = 1;     ///< words of a vector: panels and padded rows are multiples of it
  index_t panel = 0;     ///< columns of a full panel; 0: these implementations pack nothing
  bool bf16 = false;     ///< OnlineAttention multiplies bf16 pairs: Q, K and V have 16 bits, scores and sums are T
  index_t few_rows = 0;  ///< so few queries are not packed: features lie in lanes
  bool widen = false;    ///< implementations for few queries widen rows of f16, bf16 and int8 as they read them
  Layout paired = Layout::bf16_pairs;  ///< how OnlineAttention takes bf16 values, if queries are many
  bool below = false;  ///< a level of memory below runs the kernels, and has what they need one panel at a time

  /// The layout in which the implementations take an argument with this wish of its kernel, key_rows or value_pairs,
  /// whose rows are words of `type`, of 16 bits or int8. row_major: as words of T.
  constexpr Layout narrow(Layout wish, DType type, bool few_queries) const {
    if (bf16 && type == DType::bf16) return few_queries || wish == Layout::key_rows ? Layout::bf16_rows : paired;
    if (bf16 || !widen || !few_queries) return Layout::row_major;
    return type == DType::f16 ? Layout::f16_rows : type == DType::int8 ? Layout::int8_rows : Layout::bf16_rows;
  }
};

template <class T>
struct Implementations : ImplementationTraits, private detail::AllSlots<T> {
  void (*pack_queries)(View<const T> from, T* panels) = nullptr;
  void (*pack)(View<const T> from, T* panels) = nullptr;
  void (*unpack)(const T* panels, View<T> to) = nullptr;
  /// Unpacks to rows of 16-bit words, `stride` apart, rounded to nearest even. Null for T = double.
  void (*unpack_words16)(DType to, const T* panels, Shape shape, std::uint16_t* rows, index_t stride) = nullptr;
  /// Rows of 16-bit words become pairs of them, laid out as `paired` says; an odd last row is paired with zeros.
  void (*pair_rows)(const std::uint16_t* from, Shape shape, index_t stride, View<T> pairs) = nullptr;
  RowConversion<T> row_conversion;

  /// The implementation for K, null if there is none.
  template <class K>
  constexpr Implementation<T, K> of() const {
    if constexpr (std::is_base_of_v<detail::Slot<T, K>, Implementations>)
      return detail::Slot<T, K>::implementation;
    else if constexpr (requires { K::template implementation<T>(isa); })
      return K::template implementation<T>(isa);
    else
      return nullptr;
  }
  template <class K>
  constexpr void set(Implementation<T, K> implementation) {
    detail::Slot<T, K>::implementation = implementation;
  }
};

/// May the kernel have a faster implementation?
template <Kernel K>
inline constexpr bool kMayHaveImplementation = std::is_base_of_v<detail::Slot<float, K>, detail::AllSlots<float>> ||
                                               requires { K::template implementation<float>(Isa::portable); };
template <Kernel K>
constexpr bool may_have_implementation(const K&) {
  return kMayHaveImplementation<K>;
}
inline bool may_have_implementation(const AnyKernel& k) { return k.kind().implementations; }

/// The table without a faster implementation for any kernel.
template <class T>
inline constexpr Implementations<T> kPortable{};
/// The table for an instruction set that this machine can run. The folder of the processor's family (x86/) has it, or
/// portable.cpp.
template <class T>
const Implementations<T>& implementations(Isa isa);
/// The table for a level whose kernels are run by one below: tiles lie row by row, for nothing here reads panels.
/// Padded rows are as wide as those below, which then writes them where they lie.
template <class T>
Implementations<T> implementations_below(const Implementations<T>& last) {
  Implementations<T> table;
  table.isa = last.isa;
  table.lanes = last.lanes;
  table.below = true;
  table.row_conversion = last.row_conversion;
  return table;
}
/// The table for Q, K and V in bf16, if their products may be bf16, too: implementations(isa) if the set has no such
/// products; the results are then more exact.
const Implementations<float>& bf16_implementations(Isa isa);

/// How many words a tile of this shape takes in memory, and where its rows lie.
struct Placement {
  index_t words;
  index_t row_stride;
  Layout layout;       ///< row_major where the implementations do not pack
  index_t panels = 0;  ///< words of panels that stand before the rows
};
inline Placement place(const ImplementationTraits& b, Shape s, Layout layout) {
  const auto round_up = [&](index_t n) { return ceil_div(n, b.lanes) * b.lanes; };
  if (b.below && layout == Layout::panel_scratch) return {0, s.cols, Layout::row_major};
  if (b.panel == 0 && !(b.below && layout == Layout::padded_rows)) layout = Layout::row_major;
  if (s.rows <= b.few_rows && layout != Layout::key_panels && layout != Layout::padded_rows &&
      layout != Layout::read_only)
    layout = Layout::row_major;
  switch (layout) {
    case Layout::query_panels:
      return {round_up(s.rows) * (b.bf16 ? ceil_div(s.cols, 2) : s.cols), 0, layout};
    case Layout::output_panels:
      return {round_up(s.rows) * s.cols, 0, layout};
    case Layout::panel_scratch:
      return {std::min(b.panel, round_up(s.rows)) * s.cols, 0, layout};
    case Layout::key_panels:
      return {s.words() + round_up(s.rows) * s.cols, s.cols, layout, round_up(s.rows) * s.cols};
    case Layout::padded_rows: {
      // An odd number of vectors per row spreads a column over all sets of a cache.
      const index_t stride = (round_up(s.cols) / b.lanes | 1) * b.lanes;
      return {s.rows * stride, stride, layout};
    }
    case Layout::read_only:
      return {s.words(), s.cols, layout};
    default:
      break;
  }
  return {s.words(), s.cols, Layout::row_major};
}

/// Runs a kernel with the best implementation there is: its own, else those of its parts, else the portable one.
template <class T, Kernel K>
void run(const Implementations<T>& table, const K& k, std::span<const View<T>> views) {
  if (const Implementation<T, K> own = table.template of<K>(); own != nullptr && own(k, views)) return;
  if constexpr (Composite<K>) {
    const auto run_part = [&](const auto& part, const auto&... v) {
      const std::array<View<T>, sizeof...(v)> list{v...};
      kernel::run(table, part, std::span<const View<T>>(list));
    };
    spread<arity<K>>([&](const auto&... v) { k.parts(run_part, v...); }, views);
  } else {
    for (const View<T>& v : views)
      if (v.packed())
        throw std::logic_error("kernel " + std::string(K::name) + " has no implementation for packed tiles");
    kernel::run<T>(k, views);
  }
}
template <class T>
void run(const Implementations<T>& table, const AnyKernel& k, std::span<const View<T>> views) {
  k.run(table, views);
}

}  // namespace redblue::kernel
