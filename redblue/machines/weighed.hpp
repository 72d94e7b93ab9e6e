#pragma once
#include <algorithm>

#include "redblue/kernels/kernel.hpp"
#include "redblue/language/residence.hpp"
#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// Weighs what passes through another machine, one round of an `each` after another: the most that is resident, in the
/// unit of a Residence, such as bytes.
template <class Base>
class Weighed : public Passing<Weighed<Base>, Base> {
  using Passes = Passing<Weighed, Base>;

 public:
  Weighed(Base& base, const Residence& fast) : Passes(base), fast_(fast) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    resident_ += fast_.tile(array, s.rows, s.cols);
    peak_ = std::max(peak_, resident_);
    return Passes::open(array, s, layout);
  }
  void close(index_t depth, SlowArray array, Shape s) {
    resident_ -= fast_.tile(array, s.rows, s.cols);
    Passes::close(depth, array, s);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto&, std::span<const Arg> part) { pass(part); });
    Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    pass(args);
    peak_ = std::max(peak_, resident_ + fast_.word(args[0].block.array));  // occupied even if the block is empty
    Passes::modify(k, args);
  }

  Words peak() const { return peak_; }

 private:
  /// Streams that one kernel consumes side by side.
  void pass(std::span<const Arg> args) {
    Words words;
    for (const Arg& a : args)
      if (a.kind == Arg::Kind::stream && a.shape().words() > 0) words += fast_.word(a.block.array);
    peak_ = std::max(peak_, resident_ + words);
  }

  Residence fast_;
  Words resident_;
  Words peak_;
};

}  // namespace redblue::machine
