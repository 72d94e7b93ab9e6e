#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "redblue/kernels/axes.hpp"
#include "redblue/kernels/costs.hpp"
#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/language/arg.hpp"
#include "redblue/language/kernel.hpp"
#include "redblue/language/layout.hpp"
#include "redblue/language/view.hpp"
#include "redblue/masks/mask.hpp"

/// Questions to any kernel: plain, composite, or of a type that is not known. language/kernel.hpp says what a kernel
/// is.
namespace redblue::kernel {

// Kernels call these without std, so that a type of words may bring its own.
using std::abs;
using std::exp;
using std::log;
using std::signbit;
using std::tanh;

namespace detail {
template <class F, std::size_t... I>
constexpr decltype(auto) spread(F&& f, const auto& list, std::index_sequence<I...>) {
  return std::forward<F>(f)(list[I]...);
}
}  // namespace detail

/// The shape of an argument, which is an Arg of a machine or a View of an implementation.
constexpr Shape shape_of(const Arg& a) { return a.shape(); }
template <class T>
constexpr Shape shape_of(const View<T>& v) {
  return v.shape;
}

/// f(list[0], ..., list[N-1]).
template <std::size_t N, class F>
constexpr decltype(auto) spread(F&& f, const auto& list) {
  return detail::spread(std::forward<F>(f), list, std::make_index_sequence<N>{});
}

template <class T>
struct Implementations;  // kernels/implementations.hpp
template <class T, Kernel K>
void run(const Implementations<T>& table, const K& k, std::span<const View<T>> views);

/// Where a call's costs are added up.
struct Tally {
  std::array<index_t, kSlowArrays>& reads;  ///< words that streams bring, by array
  index_t& macs;                            ///< multiply-adds
  index_t passing = 0;                      ///< most words of streams that are open at a time
};

class AnyKernel;

/// The part of a call whose pairs begin at this row and column of its own.
struct Part {
  index_t row = 0, col = 0;
  bool begins = true;  ///< is it the first that visits what it updates?
};

/// Runs k on these views. Returns false, and leaves them as they are, if it cannot handle their shapes or strides.
template <class T, class K>
using Implementation = bool (*)(const K& k, std::span<const View<T>> views);

/// What is known of a type of kernels: the answers of AnyKernel. kinds.hpp makes them.
struct Kind {
  using Args = std::span<const Arg>;
  using VisitPart = std::function<void(const AnyKernel&, Args)>;
  std::string_view name;
  std::span<const Access> access;
  std::span<const Layout> layouts;
  bool adds;
  Costs costs;
  bool (*fits)(Args args);
  // The first argument is the kernel.
  index_t (*macs)(const void*, Args args);
  index_t (*exponentials)(const void*, Args args);
  std::optional<PairByPair> (*pair_by_pair)(const void*, Args args);
  index_t (*most_passing)(const void*, Args args);
  void (*add_to)(const void*, Tally& tally, Args args);
  void (*run_f32)(const void*, const Implementations<float>& table, std::span<const View<float>> views);
  void (*run_f64)(const void*, const Implementations<double>& table, std::span<const View<double>> views);
  std::vector<double> (*parameters)(const void*);
  const Place* (*place)(const void*);
  // What traces ask of plain kernels.
  std::span<const std::string_view> parameter_names;
  bool updates;          ///< has it a member `first`, so that Machine::update takes it?
  bool implementations;  ///< may it have a faster implementation?
  std::shared_ptr<void> (*copy)(const void*);
  /// With these parameters, in the order of their names; null if a value is not of its parameter's type.
  std::shared_ptr<void> (*make)(std::span<const double> values);
  bool (*first)(const void*);               ///< first_of()
  bool (*may_run)(const void*, Args args);  ///< with its parameters on these arguments: more than fits()
  bool (*can_drop)(const void*);            ///< does its dropout, if it has any, drop a share of weights at a place?
  void (*parts)(const void*, const VisitPart& visit, Args args);
  // How it divides (kernels/axes.hpp).
  std::optional<Axes> (*axes)(const void*, std::span<const Shape> shapes);
  std::shared_ptr<void> (*part)(const void*, const Part& part);
  std::span<const Layout> tile_layouts;
};
template <Kernel K>
const Kind& kind_of();  // kinds.hpp

/// Does this operation visit its first argument for the first time (so that it reads nothing of it)?
template <Kernel K>
constexpr bool first_of(const K& k) {
  if constexpr (requires { k.first; })
    return k.first;
  else
    return false;
}

/// A kernel of any type, for machines chosen at run time and for traces. The kernel must outlive it. The free functions
/// below treat it like any other kernel.
class AnyKernel {
 public:
  using VisitPart = Kind::VisitPart;
  template <Kernel K>
  explicit AnyKernel(const K& k) : kind_(kind_of<K>()), kernel_(&k), first_(first_of(k)) {}
  AnyKernel(const Kind& kind, const void* kernel, bool first) : kind_(kind), kernel_(kernel), first_(first) {}

  std::string_view name() const { return kind_.name; }
  std::span<const Access> access() const { return kind_.access; }
  bool first() const { return first_; }
  bool adds() const { return kind_.adds; }
  std::span<const Layout> layouts() const { return kind_.layouts; }
  const Costs& costs() const { return kind_.costs; }
  bool fits(std::span<const Arg> args) const { return kind_.fits(args); }
  index_t macs(std::span<const Arg> args) const { return kind_.macs(kernel_, args); }
  index_t exponentials(std::span<const Arg> args) const { return kind_.exponentials(kernel_, args); }
  std::optional<PairByPair> pair_by_pair(std::span<const Arg> args) const { return kind_.pair_by_pair(kernel_, args); }
  index_t most_passing(std::span<const Arg> args) const { return kind_.most_passing(kernel_, args); }
  void add_to(Tally& tally, std::span<const Arg> args) const { kind_.add_to(kernel_, tally, args); }
  void run(const Implementations<float>& table, std::span<const View<float>> views) const {
    kind_.run_f32(kernel_, table, views);
  }
  void run(const Implementations<double>& table, std::span<const View<double>> views) const {
    kind_.run_f64(kernel_, table, views);
  }
  std::vector<double> parameters() const { return kind_.parameters(kernel_); }
  const Place* place() const { return kind_.place(kernel_); }
  const Kind& kind() const { return kind_; }
  std::shared_ptr<void> copy() const { return kind_.copy(kernel_); }
  bool may_run(std::span<const Arg> args) const { return kind_.may_run(kernel_, args); }
  bool can_drop() const { return kind_.can_drop(kernel_); }
  void parts(const VisitPart& visit, std::span<const Arg> args) const { kind_.parts(kernel_, visit, args); }
  std::optional<Axes> axes(std::span<const Shape> shapes) const { return kind_.axes(kernel_, shapes); }
  std::shared_ptr<void> part(const Part& part) const { return kind_.part(kernel_, part); }

 private:
  const Kind& kind_;
  const void* kernel_;
  bool first_;
};

// ---- One set of questions for plain, composite and type-erased kernels ----

template <Kernel K>
std::string_view name_of(const K&) {
  return K::name;
}
inline std::string_view name_of(const AnyKernel& k) { return k.name(); }

template <Kernel K>
std::span<const Access> access_of(const K&) {
  return K::access;
}
inline std::span<const Access> access_of(const AnyKernel& k) { return k.access(); }

inline bool first_of(const AnyKernel& k) { return k.first(); }

/// Is what it does to the block that it updates to add numbers which do not depend on it? Words of such a block may be
/// one: each sum is added to it.
template <Kernel K>
constexpr bool adds(const K&) {
  if constexpr (requires { K::adds; })
    return K::adds;
  else
    return false;
}
inline bool adds(const AnyKernel& k) { return k.adds(); }

/// How the kernel accesses argument i. (If `first` is set, an update is a write.)
template <class K>
Access access_of(const K& k, std::size_t i) {
  return i == 0 && first_of(k) ? Access::write : access_of(k)[i];
}

/// A parameter as a number: an edge that a mask does not have is infinitely far.
template <class P>
double number_of(const P& p) {
  if constexpr (std::is_same_v<P, index_t>)
    if (p == Mask::kFar || p == -Mask::kFar) return p > 0 ? HUGE_VAL : -HUGE_VAL;
  return static_cast<double>(p);
}
/// The values of the kernel's data members, in the order of parameter_names.
template <Kernel K>
std::vector<double> parameters_of(K k) {
  if constexpr (requires { k.parameters(); })
    return std::apply([](const auto&... p) { return std::vector<double>{number_of(p)...}; }, k.parameters());
  else
    return {};
}
inline std::vector<double> parameters_of(const AnyKernel& k) { return k.parameters(); }

/// Where the tile of scores of a kernel lies among all; null if that is nothing to it.
template <Kernel K>
const Place* place_of(const K& k) {
  if constexpr (requires { k.place; })
    return &k.place;
  else if constexpr (requires { k.scores.place; })  // of a composite
    return &k.scores.place;
  else
    return nullptr;
}
inline const Place* place_of(const AnyKernel& k) { return k.place(); }

/// Calls visit(part, args) for each plain kernel that k consists of, in order.
template <Kernel K, class Visit>
void for_parts(const K& k, std::span<const Arg> args, Visit&& visit) {
  if constexpr (Composite<K>) {
    const auto each_part = [&](const auto& part, const auto&... part_args) {
      const std::array<Arg, sizeof...(part_args)> list{part_args...};
      for_parts(part, std::span<const Arg>(list), visit);
    };
    spread<arity<K>>([&](const auto&... a) { k.parts(each_part, a...); }, args);
  } else {
    visit(k, args);
  }
}
template <class Visit>
void for_parts(const AnyKernel& k, std::span<const Arg> args, Visit&& visit) {
  k.parts([&](const AnyKernel& part, std::span<const Arg> part_args) { visit(part, part_args); }, args);
}

/// How the kernel would like its arguments to lie; empty for kernels that wish nothing of their streams.
template <Kernel K>
constexpr std::span<const Layout> layouts_of(const K&) {
  if constexpr (requires { K::layouts; })
    return K::layouts;
  else
    return {};
}
inline std::span<const Layout> layouts_of(const AnyKernel& k) { return k.layouts(); }
template <class K>
constexpr Layout layout_of(const K& k, std::size_t i) {
  const std::span<const Layout> layouts = layouts_of(k);
  return layouts.empty() ? Layout::row_major : layouts[i];
}

/// How the kernel divides on arguments of these shapes; nothing if that is not known.
template <Kernel K>
constexpr std::optional<Axes> axes_of(const K& k, [[maybe_unused]] std::span<const Shape> shapes) {
  if constexpr (requires { K::axes; })
    return K::axes;
  else if constexpr (requires { k.axes_of(shapes); })
    return k.axes_of(shapes);
  else
    return std::nullopt;
}

/// The kernel that does a part of what k does.
template <class K>
constexpr K part_of(K k, const Part& part) {
  const auto divide = [&](auto& member) { member = part_of(member, part); };
  if constexpr (requires { k.place; }) k.place = k.place.at(part.row, part.col);
  if constexpr (requires { k.scores; }) divide(k.scores);
  if constexpr (requires { k.modify; }) divide(k.modify);
  if constexpr (requires { k.drop; }) divide(k.drop);
  if constexpr (requires { k.weights; }) divide(k.weights);
  if constexpr (requires { k.row; }) k.row += part.row;
  if constexpr (requires { k.col; }) k.col += part.col;
  if constexpr (requires { k.first; }) k.first = k.first && part.begins;
  if constexpr (requires { k.next; }) k.next = 0;
  return k;
}

/// f(arg) for each argument; unrolled where the kernel is known at compile time.
template <Kernel K, class F>
void for_args(const K&, std::span<const Arg> args, const F& f) {
  spread<arity<K>>([&](const auto&... a) { (f(a), ...); }, args);
}
template <class F>
void for_args(const AnyKernel&, std::span<const Arg> args, const F& f) {
  for (const Arg& a : args) f(a);
}

/// Do the shapes of the arguments go together? (Plain kernels.)
template <Kernel K>
constexpr bool fits(const K&, std::span<const Arg> args) {
  return args.size() == arity<K> && spread<arity<K>>([](const auto&... a) { return K::fits(a.shape()...); }, args);
}
inline bool fits(const AnyKernel& k, std::span<const Arg> args) { return k.fits(args); }

/// Multiply-adds of one call. (Plain kernels.)
template <Kernel K>
constexpr index_t macs(const K& k, std::span<const Arg> args) {
  return spread<arity<K>>([&](const auto&... a) { return k.macs(a.shape()...); }, args);
}
inline index_t macs(const AnyKernel& k, std::span<const Arg> args) { return k.macs(args); }

/// What it costs beside multiply-adds.
template <Kernel K>
constexpr Costs costs_of(const K&) {
  if constexpr (requires { K::costs; })
    return K::costs;
  else
    return {};
}
inline const Costs& costs_of(const AnyKernel& k) { return k.costs(); }

/// Exponentials of one call. (Plain kernels.)
template <Kernel K>
constexpr index_t exponentials(const K& k, std::span<const Arg> args) {
  return spread<arity<K>>(
      [&](const auto&... a) -> index_t {
        if constexpr (requires { k.exponentials(a.shape()...); })
          return k.exponentials(a.shape()...);
        else
          return 0;
      },
      args);
}
inline index_t exponentials(const AnyKernel& k, std::span<const Arg> args) { return k.exponentials(args); }

/// What an implementation takes pair by pair, if there is one that may go so.
template <Kernel K>
constexpr std::optional<PairByPair> pair_by_pair(const K& k, std::span<const Arg> args) {
  return spread<arity<K>>(
      [&](const auto&... a) -> std::optional<PairByPair> {
        if constexpr (requires { k.pair_by_pair(a.shape()...); })
          return k.pair_by_pair(a.shape()...);
        else
          return std::nullopt;
      },
      args);
}
inline std::optional<PairByPair> pair_by_pair(const AnyKernel& k, std::span<const Arg> args) {
  return k.pair_by_pair(args);
}

/// Adds one call. Streams open when the part that consumes them runs: two that different parts of a composite consume
/// cost one word at a time, two that one part consumes side by side cost two.
template <Kernel K>
void add_to(Tally& tally, const K& k, std::span<const Arg> args) {
  for_parts(k, args, [&](const auto& part, std::span<const Arg> part_args) {
    tally.macs += macs(part, part_args);
    index_t side_by_side = 0;
    for_args(part, part_args, [&](const Arg& a) {
      if (a.kind != Arg::Kind::stream) return;
      tally.reads[index_of(a.block.array)] += a.shape().words();
      side_by_side += a.shape().words() > 0 ? 1 : 0;
    });
    tally.passing = std::max(tally.passing, side_by_side);
  });
}
inline void add_to(Tally& tally, const AnyKernel& k, std::span<const Arg> args) { k.add_to(tally, args); }

/// The most words of streams that are open at a time.
template <Kernel K>
index_t most_passing(const K& k, std::span<const Arg> args) {
  index_t most = 0;
  for_parts(k, args, [&](const auto&, std::span<const Arg> part_args) { most = std::max(most, passing(part_args)); });
  return most;
}
inline index_t most_passing(const AnyKernel& k, std::span<const Arg> args) { return k.most_passing(args); }

/// Runs the kernel's implementation; a composite's portable implementation is the composition of its parts.
template <class T, Kernel K>
void run(const K& k, std::span<const View<T>> views) {
  if constexpr (Composite<K>) {
    const auto run_part = [](const auto& part, const auto&... v) {
      const std::array<View<T>, sizeof...(v)> list{v...};
      run<T>(part, std::span<const View<T>>(list));
    };
    spread<arity<K>>([&](const auto&... v) { k.parts(run_part, v...); }, views);
  } else {
    spread<arity<K>>([&](const auto&... v) { k.template run<T>(v...); }, views);
  }
}

template <Kernel K>
AnyKernel erase(const K& k) {
  return AnyKernel(k);
}
inline const AnyKernel& erase(const AnyKernel& k) { return k; }

}  // namespace redblue::kernel
