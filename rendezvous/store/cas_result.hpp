// What a compare-set's reply means. Pure.
#pragma once

#include <string_view>

#include "rendezvous/store/store.hpp"

namespace cpprun::store {

// The protocol replies with the value now stored, or with `expected` where there is none. Someone else's
// value that equals `desired` reads as Won: who must know that it was he puts something of his own into
// `desired`.
CasResult read_cas_reply(std::string_view reply, std::string_view expected, std::string_view desired);

// Throws std::invalid_argument where no reply could tell success from absence.
void require_distinct(std::string_view expected, std::string_view desired);

}  // namespace cpprun::store
