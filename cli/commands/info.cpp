#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <string_view>

#include "commands/commands.hpp"
#include "files/npz.hpp"
#include "files/open_archive.hpp"
#include "files/tensors.hpp"
#include "files/unused.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy.hpp"
#include "redblue/problem/text.hpp"
#include "report/json.hpp"

namespace redblue::cli {

namespace {

struct InfoOptions {
  std::string file;
  std::vector<std::string> names;
  std::optional<std::string> layout;
  bool json = false;
};

/// What `redblue run` would say to an operation on the tensors of a file.
struct Runnable {
  Operation op;
  std::vector<std::string> missing;
  bool related;                    ///< does the file hold some of its own tensors?
  std::string refusal;             ///< where nothing is missing and it cannot be run all the same
  std::optional<Problem> problem;  ///< where it can be run
  std::string command;
  std::vector<std::string> unused;  ///< tensors of the file that it would not read
};

/// A word for a shell.
std::string quoted(const std::string& word) {
  const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("._-/=+:,@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string command_of(const FileOptions& files, Operation op) {
  std::string text = "redblue run";
  if (op != Operation::forward) text += fmt::format(" --op {}", name_of(op));
  text +=
      fmt::format(" --input {} --output OUT.{}", quoted(*files.input), is_npz(*files.input) ? "npz" : "safetensors");
  for (const std::string& name : files.names) text += fmt::format(" --name {}", quoted(name));
  if (files.layout) text += fmt::format(" --layout {}", *files.layout);
  return text;
}

/// An archive without its data: what can be run depends on names, types and shapes.
class Shapes : public Archive {
 public:
  explicit Shapes(const std::vector<Entry>& entries) {
    for (const Entry& e : entries) entries_.emplace(e.name, e);
  }
  std::string_view format() const override { return ""; }
  std::vector<Entry> entries() const override {
    std::vector<Entry> list;
    list.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) list.push_back(entry);
    return list;
  }
  bool contains(const std::string& name) const override { return entries_.contains(name); }
  file::Tensor tensor(const std::string& name) const override {
    const Entry& e = entries_.at(name);
    if (!e.type) throw Unsupported(fmt::format("{} is of type {}: redblue takes f64, f32, f16, bf16", name, e.dtype));
    return {file::FileTensor{*e.type, e.shape, file::c_order_strides(e.shape), nullptr, false}, nullptr};
  }

 private:
  std::map<std::string, Entry> entries_;
};

Runnable runnable(FileOptions files, const Archive& archive, Operation op) {
  Runnable r{op, {}, false, "", std::nullopt, "", {}};
  Problem kind;
  kind.op = op;
  files.add_modifiers_to(kind, &archive);
  std::vector<std::string> own = files.needed(kind);
  for (const std::string& name : own)
    if (!archive.contains(files.name_of(name)))
      r.missing.push_back(name);
    else if (name != "o" && name != "lse" && name != "do")
      r.related = true;
  if (!r.missing.empty()) return r;
  own.insert(own.end(), {"o", "lse"});
  std::erase_if(files.names, [&](const std::string& n) {  // those of other operations
    return std::find(own.begin(), own.end(), n.substr(0, n.find('='))) == own.end();
  });
  try {
    files.output = "OUT";
    files.validate(kind);
    const LoadedInputs loaded(files, kind, &archive);
    const Problem problem = loaded.problem(kind);
    r.unused = unused_names(files, archive, loaded.used(), kind, {}, true);
    r.problem = problem;
    r.command = command_of(files, op);
  } catch (const Error& e) {
    r.refusal = e.what();
  }
  return r;
}

Archive::Entry entry_of_npy(const std::string& path) {
  const file::MappedFile mapped(path);
  file::NpyDescription d = file::describe_npy(mapped.bytes(), path);
  if (d.type) file::parse_npy(mapped.bytes(), path);  // is it whole?
  return {"", std::move(d.dtype), std::move(d.shape), d.type};
}

Json json_of(const Archive::Entry& e) {
  return {{"name", e.name},
          {"dtype", e.dtype},
          {"shape", e.shape},
          {"type", e.type ? Json(std::string(name_of(*e.type))) : Json(nullptr)}};
}

std::string text_of(const Archive::Entry& e, bool computed_with = true) {
  return fmt::format("{} [{}]{}", e.type ? std::string(name_of(*e.type)) : e.dtype, fmt::join(e.shape, ", "),
                     e.type || !computed_with ? "" : ": redblue does not compute with this type");
}

/// A file of scipy.sparse.save_npz, which holds pairs and no tensors.
int info_of_sparse(const InfoOptions& o, const Archive& archive) {
  const SparseMatrix m = [&] {
    try {
      return read_sparse_npz(o.file);
    } catch (const InvalidProblem& e) {
      throw InvalidProblem(fmt::format("{}: {}", o.file, e.what()));
    }
  }();
  const index_t pairs = std::ssize(m.indices) * m.block[0] * m.block[1];
  const std::string command =
      fmt::format("redblue plan --nq {} --nk {} --csr {}", m.shape[0], m.shape[1], quoted(o.file));
  if (o.json) {
    Json tensors = Json::array();
    for (const Archive::Entry& e : archive.entries()) tensors.push_back(json_of(e));
    print({{"schema", "redblue.info/1"},
           {"file", o.file},
           {"format", std::string(archive.format())},
           {"tensors", tensors},
           {"sparse", {{"format", m.format}, {"shape", m.shape}, {"pairs", pairs}, {"command", command}}},
           {"runs", Json::array()}});
    return 0;
  }
  fmt::print("{}: {}, a sparse matrix of scipy.sparse.save_npz ({})\n", o.file, archive.format(), m.format);
  for (const Archive::Entry& e : archive.entries()) fmt::print("  {:<12} {}\n", readable(e.name), text_of(e, false));
  fmt::print("{} queries x {} keys, {} pairs. As a pattern, with --d and a memory:\n    {}\n", m.shape[0], m.shape[1],
             pairs, command);
  return 0;
}
bool is_sparse(const Archive& archive) {
  return archive.format() == "npz" && archive.contains("format") && archive.contains("indptr") &&
         archive.contains("indices");
}

int info_of_npy(const InfoOptions& o) {
  if (!o.names.empty() || o.layout)
    throw InvalidProblem(fmt::format("{} holds one tensor: --name and --layout are for safetensors and .npz", o.file));
  const Archive::Entry e = entry_of_npy(o.file);
  if (o.json) {
    print({{"schema", "redblue.info/1"},
           {"file", o.file},
           {"format", "npy"},
           {"tensors", Json::array({json_of(e)})},
           {"runs", Json::array()}});
    return 0;
  }
  fmt::print("{}: npy, {}\n", o.file, text_of(e));
  if (e.type == DType::boolean)
    fmt::print("redblue run takes a file of bool as --mask (true: the query sees the key), or as --blocks\n");
  else if (e.type)
    fmt::print("redblue run takes such a file for each tensor: --q, --k, --v and --o for the forward pass\n");
  return 0;
}

int info_of_archive(const InfoOptions& o) {
  require_names(o.names, all_names());
  if (o.layout) FileLayout{*o.layout};
  const std::unique_ptr<Archive> archive = open_archive(o.file);
  if (is_sparse(*archive)) return info_of_sparse(o, *archive);
  FileOptions files;
  files.input = o.file;
  files.names = o.names;
  files.layout = o.layout;
  for (const std::string& name : all_names()) files.npy[name];  // none
  const std::vector<Archive::Entry> entries = archive->entries();
  for (const std::string& n : o.names)
    if (const std::string name = n.substr(n.find('=') + 1); !archive->contains(name)) archive->tensor(name);  // throws
  const Shapes shapes(entries);
  std::vector<Runnable> all;
  all.reserve(kOperationNames.size());
  for (std::size_t op = 0; op < kOperationNames.size(); ++op)
    all.push_back(runnable(files, shapes, static_cast<Operation>(op)));
  if (o.json) {
    Json tensors = Json::array(), runs = Json::array();
    for (const Archive::Entry& e : entries) tensors.push_back(json_of(e));
    for (const Runnable& r : all)
      runs.push_back({{"op", std::string(name_of(r.op))},
                      {"missing", r.missing},
                      {"refusal", r.refusal.empty() ? Json(nullptr) : Json(r.refusal)},
                      {"unused", r.unused},
                      {"problem", r.problem ? to_json(*r.problem) : Json(nullptr)},
                      {"command", r.problem ? Json(r.command) : Json(nullptr)}});
    print({{"schema", "redblue.info/1"},
           {"file", o.file},
           {"format", std::string(archive->format())},
           {"tensors", tensors},
           {"runs", runs}});
    return 0;
  }
  fmt::print("{}: {}\n", o.file, archive->format());
  for (const Archive::Entry& e : entries) fmt::print("  {:<12} {}\n", readable(e.name), text_of(e));
  const auto missing_text = [&](const Runnable& r) {
    const std::vector<std::string> other = other_names(shapes, files, r.missing);
    return fmt::format("(--name {} says which tensor it is)",
                       other.empty() ? r.missing.front() + "=NAME" : fmt::format("{}", fmt::join(other, " --name ")));
  };
  for (const Runnable& r : all)
    if (r.problem) {
      fmt::print("{}: batch {}, heads {} ({} key-value), {} queries, {} keys, d {}, d_v {}{}\n    {}\n", name_of(r.op),
                 r.problem->batch, r.problem->heads, r.problem->kv_heads.value_or(r.problem->heads), r.problem->n_q,
                 r.problem->n_k, r.problem->d, r.problem->d_v, mask_text(*r.problem), r.command);
      if (!r.unused.empty()) fmt::print("    not used: {}\n", fmt::join(r.unused, ", "));
    } else if (!r.related && r.op != Operation::forward)
      continue;
    else if (r.missing.empty())
      fmt::print("{}: cannot be run: {}\n", name_of(r.op), r.refusal);
    else
      fmt::print("{}: {} missing {}\n", name_of(r.op), fmt::join(r.missing, ", "), missing_text(r));
  return 0;
}

}  // namespace

void add_info(Program& program) {
  const Command command = program.command("info", "what a file of tensors holds, and what could be run on it");
  command.footer(
      "Examples:\n  redblue info X.safetensors\n  redblue info X.npz --name q=query --layout bnhd\n  redblue info "
      "Q.npy");
  auto options = std::make_shared<InfoOptions>();
  command.option("FILE", options->file, "safetensors, .npz or .npy").required();
  add_names_and_layout(command, options->names, options->layout);
  command.flag("--json", options->json, "print JSON");
  command.does([options] {
    return has_extension(options->file, ".npy") || begins_with(options->file, "\x93NUMPY") ? info_of_npy(*options)
                                                                                           : info_of_archive(*options);
  });
}

}  // namespace redblue::cli
