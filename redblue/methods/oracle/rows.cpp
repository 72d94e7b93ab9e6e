#include <algorithm>
#include <utility>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/oracle/row_polynomials.hpp"
#include "redblue/methods/oracle/weights.hpp"

namespace redblue {

namespace oracle {

namespace {

/// The rows of a published method.
template <class T>
class MethodRows final : public ApproximateRows<T> {
 public:
  MethodRows(const Method& method, const Instance<T>& x)
      : weights_(method, x), clips_(std::holds_alternative<Coreset>(method)) {}
  Row<T> row(index_t i, std::vector<index_t> keys) const override {
    Row<T> r{{}, std::move(keys)};
    r.p = weights_(i, r.keys);
    return r;
  }
  /// A coreset holds each column within what V has.
  void finish(std::vector<T>& o, const Matrix<T>& V) const override {
    for (index_t t = 0; clips_ && t < V.shape.cols; ++t) {
      T least = V(0, t), most = least;
      for (index_t j = 1; j < V.shape.rows; ++j) {
        least = std::min(least, V(j, t));
        most = std::max(most, V(j, t));
      }
      T& word = o[static_cast<std::size_t>(t)];
      word = std::min(std::max(word, least), most);
    }
  }

 private:
  MethodWeights<T> weights_;
  bool clips_;
};

}  // namespace

}  // namespace oracle

using namespace oracle;

template <class T>
using Rows = std::shared_ptr<const ApproximateRows<T>>;

Rows<float> Polynomial::rows(const Instance<float>& x) const {
  return std::make_shared<const PolynomialRows<float>>(*this, x);
}
Rows<double> Polynomial::rows(const Instance<double>& x) const {
  return std::make_shared<const PolynomialRows<double>>(*this, x);
}
Rows<long double> Polynomial::rows(const Instance<long double>& x) const {
  return std::make_shared<const PolynomialRows<long double>>(*this, x);
}

Rows<float> RowPolynomials::rows(const Instance<float>& x) const {
  return std::make_shared<const RowPolynomialRows<float>>(*this, x);
}
Rows<double> RowPolynomials::rows(const Instance<double>& x) const {
  return std::make_shared<const RowPolynomialRows<double>>(*this, x);
}
Rows<long double> RowPolynomials::rows(const Instance<long double>& x) const {
  return std::make_shared<const RowPolynomialRows<long double>>(*this, x);
}

Rows<float> PublishedMethod::rows(const Instance<float>& x) const {
  return std::make_shared<const MethodRows<float>>(redblue::fitted(method, x.sizes.n_k), x);
}
Rows<double> PublishedMethod::rows(const Instance<double>& x) const {
  return std::make_shared<const MethodRows<double>>(redblue::fitted(method, x.sizes.n_k), x);
}
Rows<long double> PublishedMethod::rows(const Instance<long double>& x) const {
  return std::make_shared<const MethodRows<long double>>(redblue::fitted(method, x.sizes.n_k), x);
}

}  // namespace redblue
