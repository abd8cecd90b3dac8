// Enums defined by a list of members, with the names by which Python finds the members.
#pragma once

#include <array>

namespace multilayer {

// Names of the members of an enum, in order.
template <class E>
inline constexpr std::array<const char*, 0> NAMES{};

}  // namespace multilayer

#define MULTILAYER_MEMBER(name) name,
#define MULTILAYER_NAME(name) #name,
#define MULTILAYER_ENUM(E, LIST)                   \
    enum class E : int { LIST(MULTILAYER_MEMBER) }; \
    template <>                                    \
    inline constexpr auto NAMES<E> = std::to_array<const char*>({LIST(MULTILAYER_NAME)});
