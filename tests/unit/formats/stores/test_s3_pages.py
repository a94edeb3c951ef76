"""Pages of an S3 listing: the usual ones are parsed quickly, others are left to the client."""

from formats.stores.s3_pages import objects


def test_an_unusual_page_is_left_to_the_client_parser() -> None:
    one = b"<Contents><Key>a &amp; &quot;b&lt;</Key><Tag/><Size>5</Size></Contents>"
    assert objects(b"<R><X/>" + one + b"<Y/></R>") == ([{"Key": 'a & "b<', "Size": 5}], b"<R><X/><Y/></R>")
    assert objects(b"<R></R>") == ([], b"<R></R>")
    for wrong in (one.replace(b"b", b"&#10;"), one.replace(b"5", b""), one[:-3], one.replace(b"a", b"<![CDATA[a]]>")):
        assert objects(b"<R>" + wrong + b"</R>") is None
