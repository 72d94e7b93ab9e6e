#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// What a kernel is. A kernel is the maths of one tile operation. It knows no machine: views in, views out, output
/// first, no I/O, no allocation. A plain kernel K has
///
///   static constexpr std::string_view name;
///   static constexpr std::array access{...};             // one Access per argument
///   static constexpr bool fits(Shape...);                // do these shapes go together?
///   static constexpr index_t macs(Shape...);             // multiply-adds
///   template <class T> void run(View<T>...) const;       // the portable implementation; the readable reference
///
/// with, if it has data members, what a trace needs to write it down and read it back,
///
///   static constexpr std::array parameter_names{...};    // std::string_view each
///   auto parameters() { return std::tie(...); }
///
/// when it takes exponentials, or costs something else beside its multiply-adds, what kernels/costs.hpp lists, and,
/// when it revisits words of slow memory through Machine::update, a member `bool first`: argument 0 is then written
/// without being read. A composite kernel has, in place of run and macs,
///
///   template <class Visit, class A> void parts(const Visit& visit, const A&... args) const;   // visit(part, args...)
///
/// Counting, checking and tracing see the parts; a machine that computes may run a fused implementation instead.
namespace redblue::kernel {

enum class Access : std::uint8_t { read, write, update };

template <class K>
inline constexpr std::size_t arity = K::access.size();

template <class K>
concept Composite = requires(const K& k) { K::kComposite; };

template <class K>
concept Kernel = requires {
  { K::name } -> std::convertible_to<std::string_view>;
  { K::access.size() } -> std::convertible_to<std::size_t>;
};

}  // namespace redblue::kernel
