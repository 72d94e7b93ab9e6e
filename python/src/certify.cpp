#include "certify.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "redblue/certificate.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

/// bf16 products are no arithmetic that anything is proved of.
DType proved_arithmetic(const NamedPlan& p) { return p.wanted.compute == DType::f64 ? DType::f64 : DType::f32; }

/// f(q, k and v, what heeds signals) without the interpreter's lock.
template <class F>
auto with_inputs(const NamedPlan& p, nb::handle arrays, bool tokens_first, const F& f) {
  Buffers buffers;
  const Tensors t = tensors_in(arrays, p.plan.problem, tokens_first, buffers);
  return unlocked([&] {
    return f(Inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]}, [watch = signal_watch()] { watch(0); });
  });
}

}  // namespace

nb::dict describe(const Certificate& c) {
  const bool polynomial = !c.polynomial.c.empty();
  nb::list heads;
  for (const HeadCertificate& h : c.heads) {
    nb::dict head;
    head["batch"] = h.batch;
    head["head"] = h.head;
    head["largest_q"] = h.largest_q;
    head["largest_k"] = h.largest_k;
    head["largest_v"] = h.largest_v;
    head["range"] = h.range;
    head["weight_error"] = finite_or_none(h.weight_error);
    head["output_error"] = finite_or_none(h.output_error);
    head["rounding"] = finite_or_none(h.rounding);
    head["exact_rows"] = h.exact_rows;
    heads.append(head);
  }
  nb::dict d;
  d["method"] = c.rows != nullptr ? "polynomial rows" : polynomial ? "polynomial" : "exact";
  d["degree"] = polynomial ? c.polynomial.degree() : 0;
  d["coefficients"] = c.polynomial.c;
  d["range"] = c.range();
  d["weight_error"] = finite_or_none(c.weight_error());
  d["output_error"] = finite_or_none(c.output_error());
  d["rounding"] = finite_or_none(c.rounding());
  d["scale"] = c.scale;
  d["heads"] = heads;
  return d;
}

nb::dict certificate(const NamedPlan& p, nb::handle arrays, bool tokens_first) {
  const Problem& problem = p.plan.problem;
  return describe(with_inputs(p, arrays, tokens_first, [&](const Inputs& x, const std::function<void()>& now_and_then) {
    return problem.approximation != nullptr ? certify(problem, x, proved_arithmetic(p), {}, now_and_then)
                                            : norms_of(problem, x, proved_arithmetic(p), {}, now_and_then);
  }));
}

nb::tuple within(const NamedPlan& exact, nb::handle arrays, bool tokens_first, const Wanted& wanted, double tolerance) {
  const Problem& problem = exact.plan.problem;
  const auto plan_of = [&](const Problem& p) { return plan_for(p, wanted); };
  const auto [decision, made] =
      with_inputs(exact, arrays, tokens_first, [&](const Inputs& x, const std::function<void()>& now_and_then) {
        Decision d = decide_with_rows(
            problem, norms_of(problem, x, proved_arithmetic(exact), {}, now_and_then), x, tolerance,
            [&] { return with_time(exact); }, [&](const Problem& p) { return plan_of(p)->plan; }, now_and_then);
        Problem chosen = problem;
        chosen.approximation = d.approximation();
        std::shared_ptr<NamedPlan> taken = d.polynomial != nullptr ? plan_of(chosen) : nullptr;
        return std::pair(std::move(d), std::move(taken));
      });
  return nb::make_tuple(made, decision.reason);
}

nb::tuple plan_within(const Problem& problem, const Wanted& wanted, double tolerance, double range) {
  std::shared_ptr<NamedPlan> exact, made;
  const Decision decision = [&] {
    const nb::gil_scoped_release unlocked;
    return decide(
        tolerance, range, least_polynomial(range, tolerance),
        [&] { return with_time(*(exact = plan_for(problem, wanted))); },
        [&](const std::shared_ptr<const Polynomial>& p) {
          Problem approximate = problem;
          approximate.approximation = p;
          return (made = plan_for(approximate, wanted))->plan;
        });
  }();
  return nb::make_tuple(decision.polynomial != nullptr ? made : exact, decision.reason);
}

}  // namespace redblue::python
