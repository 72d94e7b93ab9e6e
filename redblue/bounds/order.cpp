#include "redblue/bounds/order.hpp"

#include <algorithm>
#include <cmath>

namespace redblue::bound {

namespace {
/// The two terms, without their powers of M.
struct Terms {
  long double large, small;
};
Terms terms_of(const Nonzeros& z) {
  const long double A = z.A.to_long_double(), X = z.X.to_long_double(), AX = z.AX.to_long_double(),
                    AXA = z.AXA.to_long_double();
  return {A * A + A * X, A * std::sqrt(AXA) + std::sqrt(A * X * AX)};
}
}  // namespace

long double sparse_inputs_order(const Nonzeros& z, Words M) {
  const Terms t = terms_of(z);
  const long double m = M.to_long_double();
  return std::min(t.large / m, t.small / std::sqrt(m));
}

long double sparse_inputs_dividing_point(const Nonzeros& z) {
  const Terms t = terms_of(z);
  return t.small > 0 ? (t.large / t.small) * (t.large / t.small) : 0;
}

}  // namespace redblue::bound
