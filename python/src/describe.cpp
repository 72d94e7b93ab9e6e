#include "describe.hpp"

#include <string>
#include <string_view>

#include "redblue/bounds.hpp"
#include "redblue/problem.hpp"

namespace redblue::python {

namespace {

nb::str text_of(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::object integer_or_none(const std::optional<Words>& words) { return words ? integer_of(*words) : nb::none(); }

/// Words by array, of those that move any.
nb::dict by_array(const std::array<Words, kSlowArrays>& words) {
  nb::dict d;
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (words[a] > 0) d[text_of(kSlowArrayNames[a])] = integer_of(words[a]);
  return d;
}

nb::dict tiles_of(const plan::Tiling& tiling) {
  nb::dict d;
  for (const schedule::TileSize& k : tiling) d[text_of(k.name)] = k.value;
  return d;
}

/// The tilings of sequences of some shapes, as the program's JSON has them.
nb::list own_tilings_of(const plan::Tiling& tiling) {
  nb::list all;
  for (const auto& [core, own] : schedule::own_tilings(tiling)) {
    nb::dict d;
    d["rows"] = core.n_q;
    d["keys"] = core.n_k;
    if (core.lo != -Mask::kFar) d["lo"] = core.lo;
    if (core.hi != Mask::kFar) d["hi"] = core.hi;
    if (core.prefix > 0) d["prefix"] = core.prefix;
    d["tiling"] = tiles_of(own);
    all.append(d);
  }
  return all;
}

nb::list describe(const std::vector<bound::Bound>& list) {
  nb::list bounds;
  for (const bound::Bound& b : list) bounds.append(python::describe(b));
  return bounds;
}

nb::dict describe(const plan::Row& r) {
  nb::dict d;
  d["schedule"] = text_of(r.schedule);
  d["tiling"] = tiles_of(r.tiling);
  d["own_tilings"] = own_tilings_of(r.tiling);
  d["reads"] = integer_of(r.io.total_reads());
  d["writes"] = integer_of(r.io.total_writes());
  d["io"] = integer_of(r.io.total());
  d["ratio"] = r.ratio ? nb::object(nb::float_(*r.ratio)) : nb::none();
  d["work"] = r.work;
  d["footprint"] = integer_of(r.footprint);
  d["footprint_bytes"] = integer_or_none(r.footprint_bytes);
  d["prefetch"] = integer_of(r.prefetch);
  d["prefetch_bytes"] = integer_or_none(r.prefetch_bytes);
  d["bytes"] = integer_or_none(r.bytes);
  d["index_words"] = integer_of(r.index.reads);
  d["index_footprint"] = integer_of(r.index.resident);
  d["workspace"] = integer_of(r.workspace);
  d["flops"] = integer_of(r.flops);
  d["seconds"] = r.time ? nb::object(nb::float_(r.time->total_s)) : nb::none();
  return d;
}

nb::dict describe(const plan::Plan& plan) {
  nb::dict d = describe(plan.row());
  const Problem& p = plan.problem;
  d["operation"] = text_of(name_of(p.op));
  nb::dict sizes;
  for (const auto& [name, size] :
       {std::pair("batch", p.batch), std::pair("heads", p.heads), std::pair("kv_heads", p.kv_heads.value_or(p.heads)),
        std::pair("n_q", p.n_q), std::pair("n_k", p.n_k), std::pair("d", p.d), std::pair("d_v", p.d_v)})
    sizes[name] = size;
  d["sizes"] = sizes;
  const std::string mask = mask_text(p);
  d["mask"] = mask.empty() ? nb::object(nb::none()) : nb::object(text_of(mask.substr(2)));
  d["M"] = integer_of(plan.options.M);
  d["memory"] = plan.options.memory ? integer_of(plan.options.memory->bytes) : nb::none();
  d["method"] = text_of(name_of(p.method_kind()));
  d["read_by_array"] = by_array(plan.row().io.reads);
  d["written_by_array"] = by_array(plan.row().io.writes);
  d["bound"] = integer_of(plan.bound.words);
  d["bound_bytes"] = plan::minimises_bytes(plan.options) ? integer_of(plan::least_bytes(plan)) : nb::none();
  d["theorem"] = text_of(plan.bound.name);
  d["bounds"] = describe(plan.bounds);
  d["reason"] = text_of(plan.reason);
  nb::list rows, refused;
  for (const plan::Row& r : plan.rows) {
    nb::dict row = describe(r);
    row["may_be_chosen"] = plan.may_choose(r);
    rows.append(row);
  }
  for (const plan::Refusal& r : plan.refused) {
    nb::dict refusal;
    refusal["schedule"] = text_of(r.schedule);
    refusal["why"] = text_of(r.why);
    refused.append(refusal);
  }
  d["rows"] = rows;
  d["refused"] = refused;
  d["forward"] = plan.forward ? nb::object(describe(*plan.forward)) : nb::none();
  d["dense"] = plan.dense ? nb::object(describe(*plan.dense)) : nb::none();
  return d;
}

}  // namespace

nb::dict describe(const bound::Bound& b) {
  nb::dict d;
  d["theorem"] = text_of(b.name);
  d["words"] = integer_of(b.words);
  d["status"] = text_of(b.status);
  d["holds"] = b.holds;
  d["condition"] = text_of(b.condition);
  d["algorithms"] = text_of(b.algorithms);
  return d;
}

nb::dict describe(const NamedPlan& p) {
  nb::dict d = describe(p.plan);
  d["compute"] = text_of(name_of(p.wanted.compute));
  d["tensors"] = text_of(name_of(p.wanted.tensors));
  d["threads"] = p.wanted.threads;
  return d;
}

nb::dict describe(const Measured& m) {
  nb::dict d;
  d["io"] = integer_of(m.io.total());
  d["reads"] = integer_of(m.io.total_reads());
  d["writes"] = integer_of(m.io.total_writes());
  d["read_by_array"] = by_array(m.io.reads);
  d["written_by_array"] = by_array(m.io.writes);
  d["peak"] = integer_of(m.peak);
  d["peak_bytes"] = integer_or_none(m.peak_bytes);
  d["flops"] = integer_of(m.flops);
  d["bytes"] = integer_of(m.bytes);
  d["kernels"] = text_of(m.kernels);
  d["threads"] = m.threads;
  return d;
}

nb::list bounds(const Problem& problem, index_t M) {
  problem.validate();
  plan::Options options;
  options.M = M;
  return describe(bound::bounds_of(problem.op, plan::bound_problem(problem, options)));
}

}  // namespace redblue::python
