#include "redblue/kernels/kinds.hpp"

namespace redblue::kernel {

namespace detail {

namespace {

template <class... K>
constexpr std::array<Kind, sizeof...(K)> kinds(std::tuple<K...>*) {
  return {KindOf<K>::kind...};
}

}  // namespace

constinit const std::array<Kind, kListed> kKinds = kinds(static_cast<Listed*>(nullptr));

}  // namespace detail

AnyKernel erase(const AnyPlainKernel& kernel) {
  return std::visit([](const auto& k) { return AnyKernel(k); }, kernel);
}

}  // namespace redblue::kernel
