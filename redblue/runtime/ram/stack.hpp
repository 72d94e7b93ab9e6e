#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "redblue/language/words.hpp"

namespace redblue {

/// Memory handed out as from a stack, or, to learn how much a run takes, none at all: then every pointer is null.
class Stack {
 public:
  /// The largest piece, for messages: "workspace", "S".
  struct Largest {
    Words bytes;
    std::string_view what, array;
  };

  Stack() = default;
  explicit Stack(std::span<std::byte> memory) : memory_(memory.data()) {
    void* aligned = memory.data();
    std::size_t space = memory.size();
    memory_ = static_cast<std::byte*>(std::align(kAlign, 1, aligned, space));
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// `words` words of T, aligned for any instruction.
  template <class T>
  T* take(Words words, std::string_view what, std::string_view array = "") {
    const Words bytes = words * sizeof(T);
    if (bytes > largest_.bytes) largest_ = {bytes, what, array};
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + static_cast<std::size_t>(used_.value()));
    used_ += (bytes + (kAlign - 1)) / kAlign * kAlign;
    peak_ = std::max(peak_, used_);
    return piece;
  }
  template <class T>
  std::span<T> take_span(Words words, std::string_view what) {
    T* piece = take<T>(words, what);
    return {piece, piece == nullptr ? 0 : static_cast<std::size_t>(words.value())};
  }

  Words used() const { return used_; }
  void release(Words used) { used_ = used; }
  /// Enough bytes for every piece, at any alignment.
  Words bytes() const { return peak_ + (kAlign - 1); }
  const Largest& largest() const { return largest_; }

 private:
  static constexpr std::size_t kAlign = 64;
  std::byte* memory_ = nullptr;
  Words used_, peak_;
  Largest largest_;
};

}  // namespace redblue
