// Enums whose members are a list, with their names, by which Python looks members up.
#pragma once

#include <array>

namespace multilayer {

// Names of the members of each enum, in order.
template <class E>
inline constexpr std::array<const char*, 0> NAMES{};

}  // namespace multilayer

#define MULTILAYER_MEMBER(name) name,
#define MULTILAYER_NAME(name) #name,
#define MULTILAYER_ENUM(E, LIST)                   \
    enum class E : int { LIST(MULTILAYER_MEMBER) }; \
    template <>                                    \
    inline constexpr auto NAMES<E> = std::to_array<const char*>({LIST(MULTILAYER_NAME)});
