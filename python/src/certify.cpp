#include "certify.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "redblue/certificate.hpp"
#include "redblue/tolerance.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

/// bf16 products are no arithmetic that anything is proved of.
DType proved_arithmetic(const NamedPlan& p) { return p.compute == DType::f64 ? DType::f64 : DType::f32; }

Certificate norms(const NamedPlan& p, nb::handle arrays, bool tokens_first) {
  Buffers buffers;
  const Tensors t = tensors_in(arrays, p.plan.problem, tokens_first, buffers);
  const nb::gil_scoped_release unlocked;
  return norms_of(p.plan.problem, {t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]}, proved_arithmetic(p));
}

}  // namespace

nb::dict certificate(const NamedPlan& p, nb::handle arrays, bool tokens_first) {
  Certificate c = norms(p, arrays, tokens_first);
  const bool polynomial = p.plan.problem.approximation != nullptr;
  if (polynomial) c.prove(*p.plan.problem.approximation);
  nb::list heads;
  for (const HeadCertificate& h : c.heads) {
    nb::dict head;
    head["batch"] = h.batch;
    head["head"] = h.head;
    head["largest_q"] = h.largest_q;
    head["largest_k"] = h.largest_k;
    head["largest_v"] = h.largest_v;
    head["range"] = h.range;
    head["weight_error"] = h.weight_error;
    head["output_error"] = h.output_error;
    head["rounding"] = h.rounding;
    heads.append(head);
  }
  nb::dict d;
  d["method"] = polynomial ? "polynomial" : "exact";
  d["degree"] = polynomial ? c.polynomial.degree() : 0;
  d["coefficients"] = c.polynomial.c;
  d["range"] = c.range();
  d["weight_error"] = c.weight_error();
  d["output_error"] = c.output_error();
  d["rounding"] = c.rounding();
  d["scale"] = c.scale;
  d["heads"] = heads;
  return d;
}

nb::tuple within(const NamedPlan& exact, nb::handle arrays, bool tokens_first, const Wanted& wanted, double tolerance) {
  Certificate c = norms(exact, arrays, tokens_first);
  Problem approximate = exact.plan.problem;
  std::shared_ptr<NamedPlan> made;
  const Decision decision = [&] {
    const nb::gil_scoped_release unlocked;
    return decide(tolerance, c.range(), least_polynomial(c, tolerance), exact.plan,
                  [&](const std::shared_ptr<const Polynomial>& polynomial) {
                    approximate.approximation = polynomial;
                    c.prove(*polynomial);
                    if (!std::isfinite(c.rounding()))
                      throw Unsupported("the roundings of its sums may be large, so that nothing is proved of a run");
                    made = plan_for(approximate, wanted);
                    return made->plan;
                  });
  }();
  if (decision.polynomial == nullptr) made = nullptr;
  return nb::make_tuple(made, decision.reason);
}

}  // namespace redblue::python
