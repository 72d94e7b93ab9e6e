#include "compare.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "certify.hpp"
#include "redblue/approximations.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

nb::list heads_of(const std::vector<HeadError>& heads) {
  nb::list list;
  for (const HeadError& h : heads) {
    nb::dict d;
    d["batch"] = h.batch;
    d["head"] = h.head;
    d["frobenius"] = finite_or_none(h.frobenius);
    d["max"] = finite_or_none(h.largest);
    d["frobenius_worst"] = finite_or_none(h.most_frobenius);
    d["max_worst"] = finite_or_none(h.most_largest);
    d["proved"] = finite_or_none(h.proved);
    list.append(d);
  }
  return list;
}

nb::dict row_of(const Compared& x, Words exact) {
  nb::dict d;
  d["method"] = x.contender.method;
  d["setting"] = x.contender.setting;
  if (!x.contender.refused.empty()) {
    d["refused"] = x.contender.refused;
    return d;
  }
  d["schedule"] = x.schedule;
  d["footprint"] = integer_of(x.footprint);
  d["io"] = integer_of(x.words);
  d["io_over_exact"] = x.words.to_double() / exact.to_double();
  d["seconds"] = x.seconds;
  d["seeds"] = x.seeds;
  d["heads"] = heads_of(x.heads);
  if (x.certificate) d["certificate"] = describe(*x.certificate);
  return d;
}

}  // namespace

nb::dict compare(const Problem& problem, nb::handle arrays, bool tokens_first, const Wanted& wanted,
                 const std::optional<std::vector<std::string>>& methods, index_t repetitions, index_t seeds) {
  Buffers buffers;
  const Tensors t = tensors_in(arrays, problem, tokens_first, buffers);
  const Inputs inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]};
  CompareOptions options;
  options.M = wanted.M.value();
  options.repetitions = repetitions;
  options.seeds = seeds;
  options.run.compute = wanted.compute;
  const Comparisons found = unlocked([&] {
    options.run.pool = &pool_of(wanted.threads);
    options.run.progress = signal_watch();
    return redblue::compare(methods ? contenders(problem, *methods) : contenders(problem, inputs, wanted.compute),
                            inputs, options);
  });
  nb::list rows;
  for (const Compared& x : found.methods) rows.append(row_of(x, found.methods.front().words));
  nb::dict d;
  d["M"] = integer_of(options.M);
  d["methods"] = rows;
  d["mean_of_values"] = heads_of(found.mean_of_values);
  return d;
}

}  // namespace redblue::python
