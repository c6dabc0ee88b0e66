"""Texts that are taken for secrets, and others."""

import re
import subprocess
import sys
import time
import tomllib
import uuid
from hashlib import sha256
from importlib.resources import files

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chatbot.stores.text import redaction
from chatbot.stores.text.redaction import redact, without_secrets
from tests.effort import examples, share
from tests.servers.key_forms import KEY_FORMS, URL_SAFE, WORD, made

SENTENCES = (
    "{}", "Please keep in mind: my token is {}, thanks", "({})", "I gave her {}.", "see `{}`", "A={}\nB=2",
    '{{"k": "{}"}}', "<{}>", "**{}**", "a\u200b{}", "[it]({})",
    "我的密钥是{}，请记住", "鍵は{}です", "المفتاح{}هنا", "密钥：{}。", "키는{}입니다",
)  # fmt: skip


@pytest.mark.parametrize("kind", KEY_FORMS)
def test_keys_are_taken_out_wherever_they_stand(kind: str) -> None:
    for sentence in SENTENCES:
        kept, kinds = redact(sentence.format(KEY_FORMS[kind]))
        assert kinds, sentence
        assert KEY_FORMS[kind][8:] not in kept, sentence


SAID = {
    "Authorization: Bearer {}": made(40),
    "curl -H 'Authorization: Bearer {}' https://example.org": made(40),
    "authorization: basic {}": "YWRhOmh1bnRlcjI=",
    "the header was Bearer {}, I think": made(40),
    "Cookie: theme=dark; sessionid={}": made(32),
    "Set-Cookie: sid={}; Path=/; HttpOnly": made(32),
    "X-API-Key: {}": made(32),
    "mysql -u root -p{} -h db": "hunt3r",
    "mysqldump --password={} shop": "S3cretPw",
    "sshpass -p {} ssh ada@host": "S3cretPw",
    "curl -u ada:{} https://example.org": "S3cretPw",
    "curl -uada:{} https://example.org": "ab1",
    "PGPASSWORD={} psql": "S3cretPw",
    "postgres://ada:{}@host/db": "p@ss2word",
    "redis://:{}@host/0": "S3cretPw",
    "my groq api key is {}": f"gsk_{made(52)}",
    "my mistral api key is {}": made(32),
    "MISTRAL_API_KEY={}": made(32),
    "my key is {}": made(32),
    "The API token for the staging server is {}.": made(24),
    "aws_secret_access_key = {}": made(40, WORD + "/+"),
    "https://api.telegram.org/bot{}/getMe": f"123456789:AA{made(33, URL_SAFE)}",
    "https://discord.com/api/webhooks/123456789012345678/{}": made(68, URL_SAFE),
    "https://a.blob.core.windows.net/c?sv=2022-11-02&sig={}&se=2026": f"{made(43)}%3D",
    "machine example.org login ada password {}": "hunter2x",
    "client-key-data: {}": f"{made(200, WORD + '/+')}=",
    "APP_KEY=base64:{}": f"{made(43, WORD + '/+')}=",
    "AccountName=a;AccountKey={};EndpointSuffix=b": f"{made(86, WORD + '/+')}==",
    "//registry.npmjs.org/:_authToken={}": f"npm_{made(36)}",
    "https://example.org/v1?api_key={}&x=1": made(32),
    "my password is {}": "hunter2",
    "My password is {}.": "hunter2",
    "the password for the guest network is {}!": "blue8House",
    "password for the shed: {}": "s3cret99",
    "password for the café: {}": "s3cret99",
    "wifi的password：{}，记住": "s3cret99",
    "my\u00a0PIN\u202f: {}": "٤٧١١",
    "**Password:** {}": "hunter2x",
    "Password: _{}_": "hunt3r",
    "SMTP_PASS={}": "hunter2x",
    "db_pwd: {}": "hunter2x",
    "my passphrase is '{}'": "correct horse battery staple",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n": made(64),  # cut off before its end
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----": f"{made(70)}\n{made(70)}",
}


@pytest.mark.parametrize("sentence", SAID)
def test_secrets_are_known_by_what_is_said_of_them(sentence: str) -> None:
    kept, kinds = redact(sentence.format(SAID[sentence]))
    assert kinds
    assert SAID[sentence] not in kept
    assert redact(kept)[0] == kept


HARMLESS = """
my password is too weak
the password is wrong!
Passwords must be 12-16 characters
my password is 12 characters long
the password is sha256 hashed
The password is kept in the safe, not here
password: required
password: ${DB_PASSWORD}
PASSWORD=$DB_PASSWORD
password = getpass.getpass()
our api token was rotated 2026-02-03 by Ada
my api key is stored in /etc/chatbot/secrets/openai_key_2026.txt
my ssh key is ~/.ssh/id_ed25519_work_laptop
the key is under the pot
cache key is user:1234:profile
Basic training for the bearer of this letter
Authorization: required
cookie: chocolate-chip
sk-learn-pipeline-version-two
class='sk-fading-circle-container'
task-1234567890abcdef
hf_transfer
secret_internationalization_of_pages
the re_path and pk_of_the_row_12 of https://example.org/?signature=required
xai-org/grok-1
mysql -u root -p mydb
mysql --port=3306 --protocol=tcp
commit 48b293e8bd2cd3ab3f1b7c4f8f5c1e6a7d8e9f00
/home/ada/projects/chatbot/stores/observations/text_index.py:123
C:\\Users\\Ada\\AppData\\Local\\Programs\\Python311
https://github.com/encode/httpx/blob/main/httpx/_client.py#L123
see https://example.org/a:b@c
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
IBAN DE89370400440532013000, ISBN 978-3-16-148410-0, +49 170 1234567
def test_that_a_password_reset_token_expires_after_24_hours(): ...
api_key = os.environ['OPENAI_API_KEY']
client = OpenAI(api_key=get_key(name))
for key, value in sorted(mapping.items()):
SELECT key, token FROM auth WHERE id = 42
the antidisestablishmentarianism of Donaudampfschifffahrtsgesellschaften
API key: see 1Password item 'groq-production-2026'
""".strip().splitlines()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_kept(text: str) -> None:
    assert redact(text) == (text, ())


@example(b"", ["Authorization:", "token", "--protocol=tcp", "~/.ssh/id_ed25519_work_laptop"])
@given(data=st.binary(max_size=32), words=st.lists(st.sampled_from(" ".join(HARMLESS).split()), max_size=12))
def test_hashes_ids_and_paths_are_kept_among_any_words(data: bytes, words: list[str]) -> None:
    digest = sha256(data).hexdigest()
    for named in (digest, digest[:40], str(uuid.UUID(digest[:32])), f"/srv/{digest}/notes.md", f"{digest[:12]}.jsonl"):
        text = f"I saw {named} there"
        assert redact(text) == (text, ())
    kept, _ = redact(" ".join(words))
    assert redact(kept)[0] == kept


@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("rule", share(redaction.rules(), "a day"), ids=lambda rule: rule.id)
def test_no_rule_is_kept_from_a_text_that_it_finds_anything_in(rule: redaction.SecretRule, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(rule.pattern, alphabet=st.characters(codec="ascii")))
    secrets = [text[begin:end] for begin, end in rule.find(text)]
    if not secrets or not any(keyword in text.lower() for keyword in rule.keywords):
        return
    assert rule in list(redaction.candidates(text.lower()))
    assert all(len(secret) < 8 or secret not in redact(text)[0] for secret in secrets)


PARTS = (
    "curl ", "curl \n", "sk-", "my key is ", "key=", "password for ", "cookie: a=b; ", "mysql ", "mysql-", "sk-.",
    "api_key=", "_pass=_", "authorization=:", "api key for a ", "://a:b",
)  # fmt: skip
LONG = [part * (50_000 // len(part)) for part in PARTS]
LONG += ["sk-" + "a" * 50_000, "cookie" + " " * 50_000, "".join(f"pin: {number:06}\n" for number in range(4_000))]
SPACES = f"kind: secret\ndata:\n a:>-{' ' * 50_000}!"


@pytest.mark.parametrize("text", [*share(LONG, "a day"), SPACES], ids=lambda text: text[:20])
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    without_secrets(text)
    assert time.process_time() - started < 2


def test_a_short_secret_is_not_looked_for_within_other_words() -> None:
    kept, _ = redact("password: 12ab Call 555-12ab-99 or x12abx")
    assert re.findall("12ab", kept) == ["12ab"]


def test_every_rule_of_gitleaks_is_read_as_it_is_written() -> None:
    text = files("secretscreen").joinpath("gitleaks.toml").read_text("utf-8")
    written = [rule for rule in tomllib.loads(text)["rules"] if rule.get("regex")]
    read = redaction.rules()[: len(written)]
    assert [rule.id for rule in read] == [rule["id"] for rule in written]
    assert [rule.keywords for rule in read] == [frozenset(map(str.lower, rule["keywords"])) for rule in written]


def test_what_is_small_talk_reads_no_rule() -> None:
    use = (
        "from chatbot.stores.text.redaction import redact; from chatbot.stores.text import redaction as rules;"
        "redact('Hello there, how are you today? I have been to the library of Tromsø.');"
        "import sys; print('secretscreen' in sys.modules, sum('_written' in vars(rule) for rule in rules.rules()))"
    )
    assert subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=True).stdout == "False 0\n"
