#pragma once
#include <memory>
#include <type_traits>

namespace redblue {

/// A function that is passed on for the length of a call, so that what calls it is compiled once and not for each type
/// of function: std::function_ref of C++26. Never keep one: it points at the function, which may be a temporary.
template <class>
class FunctionRef;

template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
    requires(!std::is_same_v<F, FunctionRef> && std::is_invocable_r_v<R, const F&, A...>)
  FunctionRef(const F& f)  // NOLINT(google-explicit-constructor): a function is passed as it is
      : f_(std::addressof(f)), call_([](const void* f, A... a) -> R { return (*static_cast<const F*>(f))(a...); }) {}
  R operator()(A... a) const { return call_(f_, a...); }

 private:
  const void* f_;
  R (*call_)(const void*, A...);
};

}  // namespace redblue
