"""Names of vertices in whatever way they are spelled."""

from __future__ import annotations

import pytest

from abele.codelet.names import normalised


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        (" ns :: Plain ", "ns::Plain"),
        ("X< float , unsigned >", "X<float,unsigned int>"),
        ("X<unsigned  int,unsigned\tshort int>", "X<unsigned int,unsigned short>"),
        ("X<short unsigned, long long, unsigned long long int>", "X<unsigned short,longlong,unsigned longlong>"),
        ("X<unsigned longlong,signed,signed char>", "X<unsigned longlong,int,signed char>"),
        ("X<std::uint8_t,uint32_t,std::int64_t>", "X<unsigned char,unsigned int,longlong>"),
        ("X<my::uint8_t,unsignedness>", "X<my::uint8_t,unsignedness>"),
        ("X<16u,0x10UL,-3,+4,1'000,017,0b11>", "X<16,16,-3,4,1000,15,3>"),
        ("X<'a',' ',',','>','\\n'>", "X<'a',' ',',','>','\\n'>"),
        ("A<B<C<float> > , true >", "A<B<C<float>>,true>"),
        ("A<float2,const float *,float [4]>", "A<float2,const float*,float[4]>"),
        ("A<>", "A"),
        ("A<std::array<_Float16,2ul>>", "A<std::array<half,2>>"),
    ],
)
def test_name__however_spelled__is_the_registered_one(spelled: str, name: str) -> None:
    assert normalised(spelled) == name
    assert normalised(name) == name
