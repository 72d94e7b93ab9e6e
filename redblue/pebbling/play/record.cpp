#include "redblue/pebbling/play/record.hpp"

#include <fmt/format.h>

#include <string>

#include "redblue/kernels/registry.hpp"
#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

/// Runs it if it is a K.
template <class K>
bool record_as(const kernel::PlainKernel& k, std::span<const View<Symbol>> words) {
  const K* const own = k.get_if<K>();
  if (own != nullptr) kernel::run<Symbol>(*own, words);
  return own != nullptr;
}
template <class... K>
bool record_one_of(const kernel::PlainKernel& k, std::span<const View<Symbol>> words, std::tuple<K...>* /*list*/) {
  return (record_as<K>(k, words) || ...);
}

}  // namespace

void record(const kernel::AnyKernel& k, std::span<const View<Symbol>> words) {
  if (!record_one_of(kernel::PlainKernel(k), words, static_cast<kernel::ExactKernels*>(nullptr)))
    throw Error(fmt::format("kernel {} has no scalar graph: it is none of the exact schedules", k.name()));
}

}  // namespace redblue::pebbling
