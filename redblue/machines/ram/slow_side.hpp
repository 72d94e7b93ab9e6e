#pragma once
#include <concepts>
#include <cstdint>
#include <optional>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/dtype.hpp"
#include "redblue/language/slow_matrix.hpp"
#include "redblue/language/view.hpp"

namespace redblue::machine {

/// Rows of 16-bit words, each side by side.
struct Rows16 {
  const std::uint16_t* data;
  index_t stride;
};

/// Rows of int8 words, each side by side.
struct Rows8 {
  const std::int8_t* data;
  index_t stride;
};

/// What Ram asks of slow memory, which knows what a block is: `can_view`: do its words lie as kernels read and write
/// them? Then `view` says where; else `fetch` copies them to row-major memory and `put` copies them back; `add` adds to
/// them word by word, for words that are one. `words16`: the
/// element type, if it has 16 bits and `rows16` can say where its rows lie. `is_int8`: are the words int8, and can
/// `rows8` say where the rows lie? Then `scales` writes a scale for each row. A Slow is made for one item of a loop,
/// from what the user gives of slow memory (Slow::Arrays) and the implementations that will read it.
template <class S, class T>
concept SlowSide =
    requires(const S& s, const typename S::Arrays& arrays, const kernel::Implementations<T>& implementations,
             const Block& b, T* to, const View<const T>& from) {
      S(arrays, implementations);
      { s.can_view(b) } -> std::same_as<bool>;
      { s.view(b) } -> std::same_as<View<T>>;
      { s.words16(b) } -> std::same_as<std::optional<DType>>;
      { s.rows16(b) } -> std::same_as<Rows16>;
      { s.is_int8(b) } -> std::same_as<bool>;
      { s.rows8(b) } -> std::same_as<Rows8>;
      s.scales(b, to);
      s.fetch(b, to, index_t{});
      s.put(b, from);
      s.add(b, from);
    };

}  // namespace redblue::machine
