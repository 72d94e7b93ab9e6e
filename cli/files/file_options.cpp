#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "files/open_archive.hpp"
#include "files/tensors.hpp"
#include "files/unused.hpp"
#include "redblue/files/atomic_file.hpp"

namespace redblue::cli {

namespace {

/// The arrays that a run on a problem of this kind may read.
std::vector<SlowArray> may_be_read(const FileOptions& files, const Problem& kind) {
  Problem p = sample(kind);
  p.forward_given = !files.with_forward;
  return read_by(p);
}

/// Is this a tensor that modifies scores, the gradient of lse, or a direction of a bias or of sinks? A .npy file of it
/// may stand beside --input.
bool modifies(const std::string& name) {
  return std::ranges::any_of(std::array{SlowArray::bias, SlowArray::slopes, SlowArray::sinks, SlowArray::dlse,
                                        SlowArray::tBias, SlowArray::gBias, SlowArray::tSinks, SlowArray::gSinks},
                             [&](SlowArray a) { return tensor_name(a) == name; });
}

}  // namespace

std::vector<std::string> tensor_names(const std::vector<SlowArray>& arrays) {
  std::vector<std::string> names;
  names.reserve(arrays.size());
  for (const SlowArray a : arrays) names.push_back(tensor_name(a));
  return names;
}

Problem sample(Problem kind) {
  kind.n_q = kind.n_k = kind.d = kind.d_v = kind.d_in = 1;
  if (kind.bias) kind.bias = {1, 1, 1, 1};
  kind.patterns = {};  // of other sizes, as are lengths
  for (auto* lengths : {&kind.cu_seqlens_q, &kind.cu_seqlens_k, &kind.seqused_q, &kind.seqused_k}) lengths->clear();
  return kind;
}

std::vector<SlowArray> read_by(const Problem& p) {
  std::vector<SlowArray> list = inputs_of(p);
  for (const SlowArray a : outputs_of(p))
    if (adds_to(p, a)) list.push_back(a);
  return list;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (std::size_t op = 0; op < kOperationNames.size(); ++op) {
    Problem kind;
    kind.op = static_cast<Operation>(op);
    if (!is_projected(kind.op)) {
      kind.bias.emplace();
      kind.alibi = kind.sinks = true;
      kind.bias_gradient = kind.sinks_gradient = kind.op == Operation::backward;
      kind.lse_gradient = kind.op == Operation::backward || kind.op == Operation::second;
      kind.bias_direction = kind.sinks_direction = has_directions(kind.op);
    }
    const Problem p = sample(kind);
    for (const auto& list : {inputs_of(p), outputs_of(p)})
      for (const std::string& n : tensor_names(list))
        if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
  }
  return names;
}

void add_names_and_layout(const Command& command, std::vector<std::string>& names, std::optional<std::string>& layout) {
  command
      .option("--name", names,
              fmt::format("name of a tensor in such a file: q=query (repeatable; {})", fmt::join(all_names(), " ")))
      .type_name("TENSOR=NAME");
  command
      .option("--layout", layout,
              fmt::format("order of the dimensions in all files: {} (b batch, h heads, n or s tokens, d features; "
                          "lse has no d); default: bhnd, hnd or nd, unless the shapes leave it open",
                          fmt::join(Dimensions::names(), ", ")))
      .type_name("NAME");
}

void require_names(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  std::set<std::string> named;
  for (const std::string& n : names) {
    const std::size_t equals = n.find('=');
    if (!named.insert(n.substr(0, equals)).second)
      throw InvalidProblem(fmt::format("--name {}: {} has a name already", n, n.substr(0, equals)));
    if (equals == std::string::npos || equals + 1 == n.size() ||
        std::find(known.begin(), known.end(), n.substr(0, equals)) == known.end())
      throw InvalidProblem(fmt::format("--name {}: give TENSOR=NAME with TENSOR one of {}", n, fmt::join(known, ", ")));
  }
}

void FileOptions::add_to(const Command& command) {
  command
      .option("--input", input,
              "safetensors or .npz file with q [batch, heads, n_q, d], k, v (gradients: do, o and lse, too; scores: q "
              "and k)")
      .type_name("FILE");
  command
      .option("--output", output,
              "file to write o and lse (dq, dk, dv; g; s; ...) to: .npz by its name, all others safetensors")
      .type_name("FILE");
  add_names_and_layout(command, names, layout);
  add_unused(command, *this);
  command.flag("--with-forward", with_forward,
               "gradients: compute o and lse, too, and write them beside the gradients");
  command
      .option(
          "--raw", raw,
          "input in a file without a header, little-endian: its type, its shape, its strides in elements if it does "
          "not lie row by row, and the byte where it begins if it is not the whole file (repeatable): "
          "q=q.bin:f32:8x4096x64@128, q=q.bin:f32:8x4096x64/64x512x1")
      .type_name("TENSOR=FILE:TYPE:SHAPE[/STRIDES][@BYTE]");
  for (const std::string& name : all_names())
    command.option("--" + name, npy[name], fmt::format("{}, .npy", name))
        .type_name("FILE")
        .group("Tensors as .npy files, one each");
}

std::optional<file::TensorPlace> FileOptions::place_of(const std::string& tensor) const {
  if (const auto& path = npy.at(tensor)) return file::npy_place(*path);
  if (const auto r = raw_of(tensor)) return file::place_of(*r);
  if (input) return file::safetensors_place(*input, name_of(tensor));
  return std::nullopt;
}

std::vector<SlowArray> FileOptions::written(const Problem& kind) const {
  std::vector<SlowArray> list = outputs_of(sample(kind));
  if (with_forward) list.insert(list.begin(), {SlowArray::O, SlowArray::lse});
  return list;
}

std::unique_ptr<Archive> FileOptions::opened() const {
  try {
    return input ? open_archive(*input) : nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

void FileOptions::add_modifiers_to(Problem& kind, const Archive* archive) const {
  const auto is_there = [&](SlowArray a) {
    const std::string name = tensor_name(a);
    return std::ranges::find(facts_of(kind.op).reads, a) != facts_of(kind.op).reads.end() &&
           (npy.at(name).has_value() || raw_of(name) || name_of(name) != name || is_taken_from(archive, name));
  };
  if (is_there(SlowArray::bias)) kind.bias.emplace();
  if (is_there(SlowArray::slopes)) kind.alibi = true;
  if (is_there(SlowArray::sinks)) kind.sinks = true;
  if (is_there(SlowArray::dlse)) kind.lse_gradient = true;
  if (is_there(SlowArray::tBias) || is_there(SlowArray::gBias)) kind.bias_direction = true;
  if (is_there(SlowArray::tSinks) || is_there(SlowArray::gSinks)) kind.sinks_direction = true;
}

std::vector<std::string> FileOptions::needed(const Problem& kind) const {
  std::vector<std::string> list = tensor_names(may_be_read(*this, kind));
  // A forward pass computes them first, but not where Q, K and V are not in the file.
  if (follows_forward(kind.op) && kind.op != Operation::backward_w)
    std::erase_if(list, [](const auto& n) { return n == "o" || n == "lse"; });
  return list;
}

void FileOptions::validate(const Problem& kind) const {
  const Operation op = kind.op;
  if (with_forward && !follows_forward(op))
    throw InvalidProblem(fmt::format("--with-forward is for gradients, not for --op {}", redblue::name_of(op)));
  if (with_forward && kind.method_kind() != MethodKind::exact)
    throw InvalidProblem("--with-forward is for exact attention: gradients under --approximate need no forward pass");
  if (with_forward && kind.score != Score::softmax)
    throw InvalidProblem(
        fmt::format("--with-forward is for --score softmax: gradients of --score {} need no forward pass",
                    redblue::name_of(kind.score)));
  if (layout && FileLayout(*layout).tokens_first() && is_projected(op))
    throw Unsupported(fmt::format("--layout {}: arrays of --op {} are [batch, heads, rows, columns]: bhnd, hnd or nd",
                                  *layout, redblue::name_of(op)));
  if (!input && (strict || !ignored.empty()))
    throw InvalidProblem(fmt::format("{} is for --input: .npy files hold one tensor each",
                                     strict ? "--strict" : "--ignore " + ignored[0]));
  const bool adds = kind.accumulate || op == Operation::merge;
  const auto given = [&](const std::string& n) { return npy.at(n).has_value(); };
  const auto in = tensor_names(may_be_read(*this, kind)), out = tensor_names(written(kind));
  const bool any_npy = std::any_of(
      npy.begin(), npy.end(), [&](const auto& f) { return f.second.has_value() && !(input && modifies(f.first)); });
  const auto option_list = [](const std::vector<std::string>& list) {
    std::string text;
    for (const std::string& n : list) text += fmt::format("{}--{}", text.empty() ? "" : " ", n);
    return text;
  };
  if (any_npy && adds)
    throw InvalidProblem(
        "outputs that are given have the names of those that are written: give --input X.safetensors --output "
        "Y.safetensors (or .npz), not .npy files");
  if (any_npy && (input || output))
    throw InvalidProblem(fmt::format("give either --input and --output (safetensors, .npz) or {} {} (npy), not both",
                                     option_list(in), option_list(out)));
  if (!any_npy && !(output && (input || !raw.empty())))
    throw InvalidProblem(
        fmt::format("files are missing: give --input X.safetensors --output Y.safetensors, or {} {} as .npy files; "
                    "--raw names inputs in files without a header",
                    option_list(in), option_list(out)));
  if (input && has_extension(*input, ".npy"))
    throw InvalidProblem(fmt::format("--input {}: it takes safetensors or .npz; give .npy files by name, as {} {}",
                                     *input, option_list(in), option_list(out)));
  if (output) require_known_extension(*output);
  if (output && has_extension(*output, ".npy"))
    throw InvalidProblem(fmt::format("--output {}: it writes safetensors or .npz; give .npy files by name, as {}",
                                     *output, option_list(out)));
  for (const auto& [name, path] : npy)
    if (path && std::find(in.begin(), in.end(), name) == in.end() &&
        std::find(out.begin(), out.end(), name) == out.end()) {
      const auto has = [&](const auto& arrays) {
        return std::ranges::any_of(arrays, [&](SlowArray a) { return tensor_name(a) == name; });
      };
      if (has_directions(op) && (has(facts_of(op).reads) || has(facts_of(op).writes))) {  // tbias goes with bias
        const std::string own = name.substr(1);
        throw InvalidProblem(fmt::format("--{} {} goes with --{}: give that, too, or leave --{} out", name, *path,
                                         given(own) ? "g" + own : own, name));
      }
      throw InvalidProblem(fmt::format("--{} {}: --op {} has no such tensor; it reads {} and writes {}", name, *path,
                                       redblue::name_of(op), fmt::join(in, " "), fmt::join(out, " ")));
    }
  for (const auto& [name, path] : npy)
    for (const std::string_view other : {".npz", ".safetensors"})
      if (path && has_extension(*path, other))
        throw InvalidProblem(
            fmt::format("--{} {}: it takes a .npy file; {} goes with --input and --output", name, *path, other));
  if (any_npy) {
    std::vector<std::string> needed = out;
    std::erase(needed, "lse");  // may be left out
    if (with_forward) {
      std::erase(needed, "o");
      if (!given("o") && !given("lse"))
        throw InvalidProblem("--with-forward: give --o, --lse or both, the files it writes");
    }
    for (const std::string& n : needed)
      if (!given(n))
        throw InvalidProblem(fmt::format("files are missing: --{}; --op {} writes {}{}", n, redblue::name_of(op),
                                         fmt::join(needed, ", "),
                                         needed.size() < out.size() ? ", and lse where --lse names a file" : ""));
    if (!names.empty())
      throw InvalidProblem(fmt::format("--name {}: .npy files hold one tensor without a name", names[0]));
  }
  require_raw(in, out);
  std::vector<std::string> known = in;
  known.insert(known.end(), out.begin(), out.end());
  require_names(names, known);
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (output && name_of(out[i]) == name_of(out[j]))
        throw InvalidProblem(
            fmt::format("{} and {} would both be named {}: choose two names", out[j], out[i], name_of(out[i])));
  for (const std::string& n : out)
    if (output && is_npz(*output) && (name_of(n).size() > 255 || name_of(n).find('/') != std::string::npos))
      throw InvalidProblem(fmt::format("--name {}={}: names in .npz have no / and at most 255 bytes", n,
                                       readable(name_of(n).substr(0, 60))));
  std::vector<std::pair<std::string, std::string>> from, to;
  if (input) from.emplace_back("--input", *input);
  if (output) to.emplace_back("--output", *output);
  for (const std::string& n : in) {
    if (given(n)) from.emplace_back("--" + n, *npy.at(n));
    if (const auto r = raw_of(n)) from.emplace_back("--raw", r->path);
  }
  for (const std::string& n : out)
    if (given(n)) to.emplace_back("--" + n, *npy.at(n));
  for (std::size_t i = 0; i < to.size(); ++i) {
    for (const auto& [option, path] : from)
      if (file::same_file(path, to[i].second))
        throw InvalidProblem(fmt::format("output {} is also an input: choose another output file", to[i].second));
    for (std::size_t j = 0; j < i; ++j)
      if (file::same_file(to[j].second, to[i].second))
        throw InvalidProblem(
            fmt::format("{} and {} are the same file {}: choose two", to[j].first, to[i].first, to[i].second));
  }
}

void FileOptions::require_raw(const std::vector<std::string>& in, const std::vector<std::string>& out) const {
  std::set<std::string> seen;
  for (const std::string& text : raw) {
    const std::string tensor = parse_raw(text).name;
    const bool written = std::ranges::find(out, tensor) != out.end();
    if (std::ranges::find(in, tensor) == in.end())
      throw InvalidProblem(fmt::format(
          "--raw {}: {}; inputs are {}", text,
          written ? tensor + " is an output, which goes to .npy, .npz or safetensors" : "there is no input " + tensor,
          fmt::join(in, " ")));
    if (!seen.insert(tensor).second || npy.at(tensor))
      throw InvalidProblem(fmt::format("--raw {}: {} is given already: leave one of them out", text, tensor));
  }
}

std::optional<file::RawTensor> FileOptions::raw_of(const std::string& tensor) const {
  for (const std::string& text : raw)
    if (text.starts_with(tensor + "=")) return parse_raw(text).tensor;
  return std::nullopt;
}

std::string FileOptions::name_of(const std::string& tensor) const {
  for (const std::string& n : names)
    if (n.starts_with(tensor + "=")) return n.substr(tensor.size() + 1);
  return tensor;
}

}  // namespace redblue::cli
