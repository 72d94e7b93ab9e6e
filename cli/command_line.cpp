#include "command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <concepts>
#include <optional>
#include <sstream>
#include <utility>

#include "redblue/language/bytes.hpp"
#include "redblue/language/nearest.hpp"
#include "redblue/problem/called_elsewhere.hpp"

namespace redblue::cli {

namespace {

bool takes_whole_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type == "INT" || type == "UINT" || type == "WORDS" || type == "N";
}

std::string not_empty(const std::string& text) { return text.empty() ? "is empty: give a value, or leave it out" : ""; }

/// CLI11 lists the words of a command line backwards.
std::vector<std::string> words_backwards(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.insert(words.begin(), word);
  return words;
}

bool ends_like(const std::string& word, std::string_view extension) {
  return word.size() > extension.size() && word.ends_with(extension);
}
bool has_option(const CLI::App& command, const std::string& name) {
  return std::ranges::any_of(command.get_options(), [&](const CLI::Option* o) { return o->check_lname(name); });
}
/// The option that takes a file which stands without one.
std::string file_suggestion(const CLI::App& command, const std::string& word) {
  const bool archive = ends_like(word, ".npz") || ends_like(word, ".safetensors");
  if (!archive && !ends_like(word, ".npy")) return "";
  if (has_option(command, "nq"))
    return fmt::format(": it takes sizes, and redblue info {} says which the file has", word);
  if (!has_option(command, "input")) return "";
  return archive ? fmt::format(": did you mean --input {}?", word)
                 : ": give it by the name of its tensor, as in --q " + word;
}

/// ": did you mean ...?" for an option that the command does not have, where it has one of nearly that name, or of that
/// meaning.
std::string suggestion(const CLI::App& command, const std::string& word) {
  if (!word.starts_with("-")) return file_suggestion(command, word);
  const std::string name = word.substr(0, word.find('=')).substr(word.starts_with("--") ? 2 : 1);
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  std::string meant;
  for (const std::string_view option : called_elsewhere(name))
    for (const std::string_view own : names)
      if (meant.empty() && letters_of(option) == letters_of(own)) meant = own;
  if (meant.empty()) meant = nearest(name, names);
  return meant.empty() ? "" : fmt::format(": did you mean --{}?", meant);
}

/// What is wrong with a command line, in one sentence for people.
std::string sentence(const CLI::App& app, const CLI::Error& e) {
  std::string what = e.what();
  const std::string kind = e.get_name(), option = what.substr(0, what.find(':'));
  const std::string rest = what.size() > option.size() + 2 ? what.substr(option.size() + 2) : "";
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (kind == "ArgumentMismatch")
    return rest.starts_with("At Most") ? option + " is given more than once: give it once" : option + " needs a value";
  if (kind == "ConversionError") {  // "Could not convert: --scale = x"
    const std::size_t equals = rest.find(" = ");
    return fmt::format("{} {}: give a number", rest.substr(0, equals),
                       equals == std::string::npos ? "" : rest.substr(equals + 3));
  }
  if (what.starts_with("The following argument")) {
    const std::vector<std::string> words = words_backwards(rest);
    const bool none = app.get_subcommands().empty();
    if (none && !words.empty() && (words[0] == "report" || words[0] == "explore"))
      return fmt::format("{0} is a command of the Python package: python -m redblue {0}", words[0]);
    if (none && !words.empty() && !words[0].starts_with('-'))
      return fmt::format("{} is no command: choose from {}", words[0], fmt::join(commands, ", "));
    for (const std::string& word : words)
      if (!none && std::find(commands.begin(), commands.end(), word) != commands.end())
        return fmt::format("{} is a second command: give one at a time", word);
    if (none) return fmt::format("{} does not go with redblue", fmt::join(words, " "));
    const CLI::App& command = *app.get_subcommands()[0];
    return fmt::format("{} does not go with redblue {}{}", fmt::join(words, " "), command.get_name(),
                       suggestion(command, words[0]));
  }
  if (kind == "RequiredError" && app.get_subcommands().empty())
    return fmt::format("a command is missing: choose from {}", fmt::join(commands, ", "));
  if (kind == "RequiredError") {  // it may be missing because it has another name here
    const CLI::App& command = *app.get_subcommands()[0];
    for (const std::string& word : command.remaining())
      if (const std::string meant = suggestion(command, word); !meant.empty())
        return fmt::format("{} does not go with redblue {}{}", word, command.get_name(), meant);
  }
  if (kind == "RequiredError") return what.substr(0, what.find(' ')) + " is missing";
  if (kind == "ValidationError") return fmt::format("{} {}", option, rest);  // the texts of checks
  return what;
}

/// A text that says a number other than 0, so small that it would be read as 0.
std::string vanishing(const std::string& text) {
  double value = 1;
  const bool is_zero = CLI::detail::lexical_cast(text, value) && value == 0;
  if (!is_zero || text.substr(0, text.find_first_of("eEpP")).find_first_of("123456789") == std::string::npos) return {};
  return fmt::format("{}: this number is too small to be told from 0; give 0, or one from 5e-324 on", text);
}

/// One line.
std::string failure(const CLI::App* app, const CLI::Error& e) {
  const auto parsed = app->get_subcommands();
  return fmt::format("redblue: {} (redblue {}--help lists what there is)\n", sentence(*app, e),
                     parsed.empty() ? "" : parsed[0]->get_name() + " ");
}

}  // namespace

Option Option::type_name(const std::string& name) const { return Option(*option_.type_name(name)); }
Option Option::required() const { return Option(*option_.required()); }
Option Option::positive() const {
  return Option(*option_.check([](const std::string& text) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) && value > 0 ? std::string()
                                                               : fmt::format("{}: give a number above 0", text);
  }));
}
Option Option::in_range(index_t least, index_t most) const {
  return Option(*option_.check([least, most](const std::string& text) {
    index_t value = 0;
    const bool inside = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return inside ? std::string() : fmt::format("{}: give a number from {} to {}", text, least, most);
  }));
}
Option Option::one_of(const std::vector<std::string>& names) const {
  return Option(*option_.check([names](const std::string& text) {
    const bool known = std::find(names.begin(), names.end(), text) != names.end();
    return known ? std::string() : fmt::format("{}: choose from {}", text, fmt::join(names, ", "));
  }));
}
Option Option::group(const std::string& heading) const { return Option(*option_.group(heading)); }

Option Option::words() const {
  return Option(*option_.check([](const std::string& text) {
    const auto bytes = bytes_from(text);
    if (!bytes || not_decimal(text).empty()) return std::string();
    const bool unit = text.find_first_not_of("0123456789.eE+") != std::string::npos;
    return unit ? fmt::format("{}: it takes words; for bytes give --memory {}", text, text)
                : fmt::format("{}: write the number out: {}", text, bytes->str());
  }));
}

template <class T>
Option Command::option(const std::string& name, T& to, const std::string& what) const {
  CLI::Option* const option = app_.add_option(name, to, what);
  if constexpr (std::same_as<T, double> || std::same_as<T, std::optional<double>>) option->check(vanishing);
  return Option(*option);
}
template Option Command::option(const std::string&, index_t&, const std::string&) const;
template Option Command::option(const std::string&, std::size_t&, const std::string&) const;
template Option Command::option(const std::string&, double&, const std::string&) const;
template Option Command::option(const std::string&, std::string&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<index_t>&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&) const;

void Command::flag(const std::string& name, bool& to, const std::string& what) const { app_.add_flag(name, to, what); }

void Command::footer(const std::string& text) const { app_.footer(text); }

void Command::does(std::function<int()> work) const {
  app_.callback([&exit_code = exit_code_, work = std::move(work)] { exit_code = work(); });
}

Program::Program(const std::string& what, const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(what)) {
  app_->set_version_flag("--version", version);
  app_->footer(footer);
  app_->failure_message(failure);
  app_->require_subcommand(0, 1);
}

Program::~Program() = default;

Command Program::command(const std::string& name, const std::string& what) {
  return {*app_->add_subcommand(name, what), exit_code_};
}

int Program::run(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(words[1]) == "help") {  // help plan: plan --help
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  for (CLI::App* command : app_->get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (takes_whole_number(*option))
        option->check(not_decimal);  // CLI11 takes 010 for 8
      else if (option->get_items_expected_max() > 0)
        option->check(not_empty);
  try {
    app_->parse(static_cast<int>(words.size()), words.data());
    if (app_->get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);  // an unknown one is named before
  } catch (const CLI::ParseError& e) {
    return app_->exit(e) == 0 ? 0 : 2;
  }
  return exit_code_;
}

std::string not_decimal(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return text + " does not fit 64 bits";
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool leading_zero = digits.size() > 1 && digits[0] == '0';
  return error == std::errc() && end == text.data() + text.size() && !leading_zero
             ? ""
             : "'" + text + "' is not a whole number in decimal digits";
}

}  // namespace redblue::cli
