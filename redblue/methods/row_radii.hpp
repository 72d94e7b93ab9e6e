#pragma once
#include "redblue/methods/certificate.hpp"

namespace redblue {

/// HeadCertificate::longest of this head.
double longest_key(const Certificate& norms, std::size_t head, const RowOptions& how, const RowLengths& lengths);
/// The radius of a query of this length, or a little more: as large as a run may find it.
double most_radius(const Certificate& norms, double longest, double query);

}  // namespace redblue
