// Context-free grammars in the form that the engine runs: no empty words, no left recursion, few rules.
#pragma once

#include <vector>

#include "engine/base/byte_set.h"
#include "engine/cfg/cfg_body.h"

namespace constrain::cfg {

/// Rule bodies before normalisation, by symbol: the paths from node 0 to node 1. Terminals have no nodes.
using Nets = std::vector<Net>;

/// Rule bodies, by symbol. A body without states stands for a terminal or another symbol that is not looked into.
using Bodies = std::vector<Body>;

/// Which symbols derive the empty word.
std::vector<bool> nullable_symbols(const Nets& nets);

/// The same rules without their empty words: every use of a nullable symbol becomes optional instead.
Bodies without_empty_words(Nets nets, const std::vector<bool>& nullable);

/// Removes the edges that lie on no path to a word. `inhabited[s]` tells of symbols that have words beside those of
/// their bodies.
/// A symbol that derives nothing is left with a body that has no edges.
void remove_unproductive(Bodies& bodies, const std::vector<bool>& inhabited);

/// Rules, reachable from `start`, of the same language without left recursion, be it direct, indirect or mutual.
///
/// The rules of a cycle of first calls are read as one left-linear grammar over whatever else they call: a word of A
/// begins with a seed, a word of some rule B of the cycle that does not begin with a call inside the cycle; and then
/// every completed word of B may be continued to a word of C wherever C begins with a call of B. That is a regular
/// language over calls, and becomes an automaton: the textbook elimination (A: A x | y becomes y x*) for all rules of
/// a cycle at once, without new rules.
Bodies without_left_recursion(const Bodies& bodies, Symbol start);

/// Substitutes the bodies of rules that are small or called once for the calls of them. Bodies of `kept` symbols
/// neither go into others nor take others in.
Bodies inlined(const Bodies& bodies, Symbol start, const std::vector<bool>& kept);

/// What the words of each symbol may begin with. `first[s]` is what they may begin with beside what the body tells. No
/// symbol derives the empty word.
std::vector<ByteSet> first_bytes(const Bodies& bodies, std::vector<ByteSet> first);

/// What may come right after each symbol in a text of some of `roots`, by its first bytes, after which nothing comes.
std::vector<ByteSet> following_bytes(const Bodies& bodies, const std::vector<Symbol>& roots,
                                     const std::vector<ByteSet>& first);

/// The largest number of rules that a rule may enter one inside the other before any byte is read. Left recursion must
/// have been removed.
size_t first_call_depth(const Bodies& bodies, Symbol start);

}  // namespace constrain::cfg
