#include "files/tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <list>
#include <memory>
#include <set>

#include "files/open_archive.hpp"
#include "files/unused.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/files/npy.hpp"

namespace redblue::cli {

namespace {

std::vector<std::string> tensor_names(const std::vector<SlowArray>& arrays) {
  std::vector<std::string> names;
  names.reserve(arrays.size());
  for (const SlowArray a : arrays) names.push_back(tensor_name(a));
  return names;
}

/// A problem of this kind with sizes, for its lists of arrays.
Problem sample(Problem kind) {
  kind.n_q = kind.n_k = kind.d = kind.d_v = kind.d_in = 1;
  if (kind.bias) kind.bias = {1, 1, 1, 1};
  kind.patterns = {};  // of other sizes, as are lengths
  for (auto* lengths : {&kind.cu_seqlens_q, &kind.cu_seqlens_k, &kind.seqused_q, &kind.seqused_k}) lengths->clear();
  return kind;
}

/// The arrays that a run reads from files: inputs, and outputs that are given.
std::vector<SlowArray> read_by(const Problem& p) {
  std::vector<SlowArray> list = inputs_of(p);
  for (const SlowArray a : outputs_of(p))
    if (adds_to(p, a)) list.push_back(a);
  return list;
}

/// The arrays that a run on a problem of this kind may read.
std::vector<SlowArray> may_be_read(const FileOptions& files, const Problem& kind) {
  Problem p = sample(kind);
  p.forward_given = !files.with_forward;
  return read_by(p);
}

/// A bias with up to four dimensions, the last of them keys; slopes or sinks with one, heads.
Tensor view_of_modifier(SlowArray a, const file::Tensor& t) {
  const std::size_t rank = t.shape().size();
  const bool heads = a != SlowArray::bias;
  const bool fits = heads ? rank == 1 || rank == 4 : rank >= 1 && rank <= 4;
  if (!fits)
    throw InvalidProblem(fmt::format("{} is [{}]: give {}", tensor_name(a), fmt::join(t.shape(), ", "),
                                     heads ? "[heads]" : "[batch, heads, n_q, n_k] or the last of these dimensions"));
  std::array<index_t, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
  const std::size_t first = heads && rank == 1 ? 1 : 4 - rank;
  for (std::size_t k = 0; k < rank; ++k) {
    shape[first + k] = t.shape()[k];
    strides[first + k] = t.strides()[k];
  }
  return {const_cast<std::byte*>(t.data()), t.dtype(), shape, strides};
}

/// Sizes from shapes.
void set_sizes(Problem& p, const Tensors& t) {
  const auto shape = [&](SlowArray a) { return t[a].shape; };
  if (p.op == Operation::merge) {
    const auto [batch, heads, rows, cols] = shape(SlowArray::Og);
    p.batch = batch, p.heads = heads, p.n_q = rows, p.d_v = cols;
    p.n_k = p.d = 1;  // it has none
    return;
  }
  const SlowArray first = is_projected(p.op) ? SlowArray::A1 : SlowArray::Q;
  p.batch = shape(first)[0];
  p.heads = shape(first)[1];
  p.n_q = shape(first)[2];
  if (!is_projected(p.op)) {
    p.kv_heads = shape(SlowArray::K)[1];
    p.n_k = shape(SlowArray::K)[2];
    p.d = shape(SlowArray::Q)[3];
    p.d_v = is_of_pairs(p.op) ? p.d : shape(SlowArray::V)[3];
    return;
  }
  p.n_k = shape(p.sources == Sources::self ? SlowArray::A1 : SlowArray::A2)[2];
  if (p.op == Operation::backward_w) {
    p.d_in = shape(SlowArray::A1)[3];
    p.d = shape(SlowArray::WQ)[3];
    p.d_v = shape(SlowArray::WV)[3];
  } else {
    p.d = shape(SlowArray::X)[3];
    p.d_v = shape(SlowArray::Y)[3];
  }
}

/// Is this a tensor that modifies scores? A .npy file of it may stand beside --input.
bool modifies(const std::string& name) {
  return std::ranges::any_of(std::array{SlowArray::bias, SlowArray::slopes, SlowArray::sinks},
                             [&](SlowArray a) { return tensor_name(a) == name; });
}

}  // namespace

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (std::size_t op = 0; op < kOperationNames.size(); ++op) {
    Problem kind;
    kind.op = static_cast<Operation>(op);
    if (!is_projected(kind.op)) {
      kind.bias.emplace();
      kind.alibi = kind.sinks = true;
      kind.bias_gradient = kind.sinks_gradient = kind.op == Operation::backward;
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
  for (const std::string& name : all_names())
    command.option("--" + name, npy[name], fmt::format("{}, .npy", name))
        .type_name("FILE")
        .group("Tensors as .npy files, one each");
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
           (npy.at(name).has_value() || name_of(name) != name || is_taken_from(archive, name));
  };
  if (is_there(SlowArray::bias)) kind.bias.emplace();
  if (is_there(SlowArray::slopes)) kind.alibi = true;
  if (is_there(SlowArray::sinks)) kind.sinks = true;
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
  if (!any_npy && !(input && output))
    throw InvalidProblem(
        fmt::format("files are missing: give --input X.safetensors --output Y.safetensors, or {} {} as .npy files",
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
        std::find(out.begin(), out.end(), name) == out.end())
      throw InvalidProblem(fmt::format("--{} {}: --op {} has no such tensor; it reads {} and writes {}", name, *path,
                                       redblue::name_of(op), fmt::join(in, " "), fmt::join(out, " ")));
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
  for (const std::string& n : in)
    if (given(n)) from.emplace_back("--" + n, *npy.at(n));
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

std::string FileOptions::name_of(const std::string& tensor) const {
  for (const std::string& n : names)
    if (n.starts_with(tensor + "=")) return n.substr(tensor.size() + 1);
  return tensor;
}

LoadedInputs::LoadedInputs(const FileOptions& files, const Problem& kind, const Archive* archive) {
  const Operation op = kind.op;
  std::unique_ptr<Archive> own;
  if (archive == nullptr && files.input) archive = (own = open_archive(*files.input)).get();
  const auto is_there = [&](const std::string& name) {
    return files.npy.at(name).has_value() || files.is_taken_from(archive, name);
  };
  const auto read = [&](const std::string& name) {
    const std::optional<std::string>& npy = files.npy.at(name);
    if (npy && files.is_taken_from(archive, name))
      throw InvalidProblem(fmt::format("--{} {}: {} has a tensor {}, too: leave one of them out", name, *npy,
                                       *files.input, files.name_of(name)));
    if (npy) return file::read_npy(*npy);
    if (archive != nullptr) {
      used_.insert(files.name_of(name));
      return archive->tensor(files.name_of(name));
    }
    throw InvalidProblem(fmt::format("files are missing: --op {} needs --{}", redblue::name_of(op), name));
  };
  if (files.with_forward) {
    forward_given_ = false;
  } else if (follows_forward(op) && kind.has_statistics()) {
    forward_given_ = is_there("o");
    if (forward_given_ != is_there("lse"))
      throw InvalidProblem(fmt::format("{} is given and {} is not: give both, or neither to have them computed first",
                                       forward_given_ ? "o" : "lse", forward_given_ ? "lse" : "o"));
  }
  Problem p = sample(kind);
  p.forward_given = forward_given_;
  if (files.layout) layout_.emplace(*files.layout);
  const auto arrays = read_by(p);
  if (archive != nullptr) require_names_in(*archive, files, tensor_names(arrays));
  for (const SlowArray a : arrays) {
    if (is_of_modifiers(a)) {
      const std::string name = tensor_name(a);
      if (!is_there(name) && files.name_of(name) == name) continue;  // slopes that ALiBi's authors give
      tensors_[a] = view_of_modifier(a, loaded_.emplace(a, read(tensor_name(a))).first->second);
      continue;
    }
    const file::Tensor& t = loaded_.emplace(a, read(tensor_name(a))).first->second;
    const file::Tensor& first = loaded_.at(arrays.front());
    if (!layout_)
      layout_ =
          FileLayout::of_rank(first.shape().size(), fmt::format("{} [{}]", tensor_name(a), fmt::join(t.shape(), ", ")));
    const bool has_no_columns = a == SlowArray::lse || a == SlowArray::lse_g;
    if (!files.layout && t.rank() + (has_no_columns ? 1 : 0) != first.rank())
      throw InvalidProblem(fmt::format(
          "{} [{}] and {} [{}] have numbers of dimensions that do not go together: give all the same, lse one "
          "less (no last dimension)",
          tensor_name(arrays.front()), fmt::join(first.shape(), ", "), tensor_name(a), fmt::join(t.shape(), ", ")));
    tensors_[a] = layout_->view(a, t);
    if (t.dtype() == DType::boolean)
      throw InvalidProblem(
          fmt::format("{} is bool: only a bias may be, as a mask in which true keeps", tensor_name(a)));
    for (const index_t size : t.shape())
      if (size < 1)
        throw InvalidProblem(
            fmt::format("{} is [{}]: every dimension must be at least 1", tensor_name(a), fmt::join(t.shape(), ", ")));
  }
  if (!files.layout && !is_projected(op) && op != Operation::merge)
    require_clear_layout(*layout_, tensors_[SlowArray::Q], tensors_[SlowArray::K]);
  // If the file holds two copies of what --sources declares to be one array, their numbers must be equal.
  for (const auto& [copy, source] :
       {std::pair(SlowArray::A2, SlowArray::A1),
        std::pair(SlowArray::A3, kind.sources == Sources::self ? SlowArray::A1 : SlowArray::A2)}) {
    const std::string name = tensor_name(copy);
    if (!is_projected(op) || loaded_.contains(copy) || !is_there(name)) continue;
    if (const file::Tensor t = read(name); !same_numbers(tensors_[source], layout_->view(copy, t)))
      throw InvalidProblem(fmt::format("--sources {}: {} and {} differ; give --sources distinct, or leave {} out",
                                       redblue::name_of(kind.sources), tensor_name(source), name, name));
  }
}

bool LoadedInputs::any_f64() const {
  return std::any_of(loaded_.begin(), loaded_.end(), [](const auto& t) { return t.second.dtype() == DType::f64; });
}

Problem LoadedInputs::problem(Problem p) const {
  set_sizes(p, tensors_);
  if (p.bias) p.bias = tensors_[SlowArray::bias].shape;
  p.forward_given = forward_given_;
  p.validate();
  const auto others = [&](SlowArray wrong) {
    std::string text;
    for (const SlowArray a : inputs_of(p))
      if (a != wrong)
        text += fmt::format("{} {} [{}]", text.empty() ? "" : ",", tensor_name(a), fmt::join(tensors_[a].shape, ", "));
    return text;
  };
  for (const SlowArray a : inputs_of(p)) {
    const auto wanted = shape_of(p, a), found = tensors_[a].shape;
    if (a == SlowArray::slopes && tensors_[a].data == nullptr) continue;
    if (found != wanted && is_of_modifiers(a) && a != SlowArray::bias)
      throw InvalidProblem(fmt::format("{} has {} numbers, and q has {} heads: give one for each, as [heads]",
                                       tensor_name(a), found[0] * found[1] * found[2] * found[3], p.heads));
    if (found != wanted)
      throw InvalidProblem(fmt::format("{} is [{}], beside{} it must be [{}] (batch, heads, rows, columns)",
                                       tensor_name(a), fmt::join(found, ", "), others(a), fmt::join(wanted, ", ")));
  }
  return p;
}

struct OutputFiles::Files {
  struct Output {
    SlowArray array;
    std::string name;
    std::vector<std::byte> data;
    Tensor view;
    file::FileTensor tensor;
    std::optional<file::AtomicFile> npy;
  };
  FileOptions options;
  std::optional<file::AtomicFile> archive;
  std::list<Output> outputs;  // AtomicFile stays where it is

  /// What the one file holds.
  std::vector<file::NamedTensor> named() const {
    std::vector<file::NamedTensor> list;
    for (const Output& out : outputs) list.push_back({options.name_of(out.name), out.tensor});
    return list;
  }
};

OutputFiles::OutputFiles(const FileOptions& files, const Problem& p, DType dtype, DType lse_dtype,
                         const FileLayout& layout)
    : files_(std::make_unique<Files>()) {
  files_->options = files;
  if (files.output) files_->archive.emplace(*files.output);
  for (const SlowArray a : files.written(p)) {
    const std::string name = tensor_name(a);
    if (!files.wants(name)) continue;
    Files::Output& out = files_->outputs.emplace_back();
    out.array = a;
    out.name = name;
    const DType type = a == SlowArray::lse || adds_to(p, a) ? lse_dtype : dtype;
    const auto shape = shape_of(p, a);
    const Words words = Words(shape[0]) * shape[1] * shape[2] * shape[3];
    out.data.resize(static_cast<std::size_t>((words * size_of(type)).to_index()));
    if (is_of_modifiers(a)) {  // in no layout, as bias and sinks are
      const std::vector<index_t> in_file =
          a == SlowArray::dSinks ? std::vector<index_t>{p.heads} : std::vector<index_t>(shape.begin(), shape.end());
      out.view = Tensor(out.data.data(), type, shape);
      out.tensor = file::c_order_tensor(type, in_file, out.data.data());
    } else {
      out.view = layout.contiguous(out.data.data(), type, shape);
      out.tensor = file::c_order_tensor(type, layout.shape_in_file(a, shape), out.data.data());
    }
    if (!files.output) out.npy.emplace(*files.npy.at(name)).reserve(file::npy_file_size(out.tensor));
  }
  if (files.output) files_->archive->reserve(archive_size(*files.output, files_->named()));
}

OutputFiles::~OutputFiles() = default;

void OutputFiles::add_to(Tensors& tensors, RunOptions& options) const {
  for (const auto& out : files_->outputs) tensors[out.array] = out.view;
  if (files_->options.with_forward) options.forward = {tensors[SlowArray::O], tensors[SlowArray::lse]};
}

void OutputFiles::copy_given(const Problem& p, const Tensors& given) const {
  for (auto& out : files_->outputs) {
    if (!adds_to(p, out.array)) continue;
    const Tensor &from = given[out.array], &to = out.view;
    if (from.dtype != to.dtype)
      throw Unsupported(
          fmt::format("{} is {} in the file: parts are added in {}, the type of the arithmetic, for "
                      "another type would round each of them",
                      out.name, redblue::name_of(from.dtype), redblue::name_of(to.dtype)));
    if (from.shape != to.shape)
      throw InvalidProblem(fmt::format("{} is [{}]: it must be [{}] (batch, heads, rows, columns)", out.name,
                                       fmt::join(from.shape, ", "), fmt::join(to.shape, ", ")));
    copy(from, to);
  }
}

void OutputFiles::commit() {
  if (files_->archive) {
    write_archive(*files_->archive, files_->named());
    files_->archive->commit();
    return;
  }
  std::vector<file::AtomicFile*> all;
  for (auto& out : files_->outputs) {
    file::write_npy(*out.npy, out.tensor);
    all.push_back(&*out.npy);
  }
  file::AtomicFile::commit_together(all);
}

}  // namespace redblue::cli
