#pragma once
#include <optional>

#include "command_line.hpp"
#include "redblue/methods/certificate.hpp"
#include "redblue/methods/tolerance.hpp"
#include "redblue/verify/verify.hpp"
#include "report/json.hpp"

namespace redblue::cli {

Json to_json(const Decision& d);

/// The file that scripts/check_certificate.py checks again: docs/certificates.md has its fields.
Json to_json(const Certificate& c, const Problem& p, std::optional<double> tolerance);
void print_text(const Certificate& c, std::optional<double> tolerance);

/// What --verify measured, beside what is proved, in the head where it comes closest.
struct MeasuredError {
  double measured = 0, proved = 0, rounding = 0;  ///< in units of the head's largest |V|
  bool ok = true;                                 ///< in every head, o is finite, and measured <= proved + rounding
};
MeasuredError measured_error(const Certificate& c, const Nearness& n);
void print_text(const MeasuredError& m);
Json to_json(const MeasuredError& m);

}  // namespace redblue::cli
