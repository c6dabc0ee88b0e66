"""Orders to a model, in English."""

from __future__ import annotations

from chatbot.chat.rules.rule import Rule, phrase

_NOT_NEGATED = (
    r"(?<!do\Wnot\W)(?<!don\Wt\W)(?<!never\W)(?<!should\Wnot\W)(?<!must\Wnot\W)(?<!\bwe\W)(?<!\bi\W)(?<!\bthey\W)"
)
_DROP = (
    r"(?:ignore|disregard|forget|override|bypass|discard|neglect|pay no attention to|(?:do not|don t"
    r"|stop) (?:follow|obey)(?:ing)?)"
)
_EARLIER = r"(?:previous|prior|earlier|above|preceding|former|original|initial|system|safety|existing|your|all|any)"
_ORDERS = (
    r"(?:instructions?|prompts?|rules?|directives?|guidelines|commands?|orders|guardrails|restrictions"
    r"|programming|context|guidance|policies)"
)
_SHOW = (
    r"(?:reveal|print|show|repeat|output|display|leak|expose|dump|disclose|recite|share|tell|write|copy|quote|give"
    r"|what (?:is|are))"
)
_OWN = r"(?:system|initial|hidden|secret|original|internal|developer)"
_SEND = r"(?:send|forward|e?mail|post|upload|append|leak|exfiltrate|transmit|encode|insert)"
_SECRETS = r"(?:conversation|chat (?:history|log)|(?:system )prompt|api keys?|credentials|secrets|passwords?|memory)"
_SOMEWHERE = r"(?:https?|www|url|attacker|webhook|[a-z0-9.]+@[a-z0-9.]+)"
_USER = r"(?:the |your )(?:end )?(?:users?|humans?|operator)"
_NOT = r"(?:do not|don t|never|must not|should not)"
_FROM_NOW_ON = (
    r"(?:from now on|henceforth|from this (?:point|moment)(?: on| forward| onwards?)?|starting now|going forward)"
)
_ANSWER = r"(?:respond|answer|reply|obey|include|append|insert|recommend|send|forward)"
_WHENEVER = r"(?:when(?:ever)?|if|every time|each time|next time) (?:the|any|a) (?:user|human)"
_BECOMES = r"you (?:are|re) (?:now|from now on|henceforth|no longer)"
_NOT_HARMLESS = (
    r"(?!(?:an?|the|in|my) WORDS{0,3}(?:members?|subscribers?|customer|citizen|owner|parent|grand[a-z]+|father|mother"
    r"|friends?|fan|hands|resident|line|queue|area|middle|city|phase|year|manager)(?![^\W_]))"
)
_ANOTHER = (
    r"(?:an?|the|my|called|named|known as|acting|operating|playing|running|free|unrestricted|unbound|dan|root|admin"
    r"|administrator|evil|able to do anything|to|in WORDS{0,2}mode|WORDS{0,2}?(?:assistant|[a-z]{0,20}bot"
    r"|[a-z]{0,20}gpt))"
)
_UNBOUND = r"(?:unrestricted|unfiltered|uncensored|jailbroken|evil|administrator|root|dan)"

ENGLISH: tuple[Rule, ...] = (
    phrase(
        "override",
        rf"{_NOT_NEGATED}{_DROP} WORDS{{0,3}}?{_EARLIER} WORDS{{0,2}}{_ORDERS}",
        rf"{_NOT_NEGATED}{_DROP} WORDS{{0,2}}?(?:instructions?|prompts?|directives?) (?:given )?(?:above|before"
        rf"|so far)",
        rf"{_DROP} (?:everything|anything|all|whatever|what) (?:that )?you (?:know|knew|learned|(?:have been"
        rf"|were) told)",
        rf"{_DROP} (?:everything|all|the text|all the text)(?: of the)? (?:above|before this|up to now)",
        rf"{_DROP} (?:all |of |the ){{0,3}}(?:above|preceding) and",
    ),
    phrase(
        "persona",
        rf"{_BECOMES} {_NOT_HARMLESS}{_ANOTHER}",
        r"you (?:are|re) no longer (?:bound|restricted|required|limited|obliged)",
        r"(?:act|behave|answer|respond|pretend|role ?play) (?:as if you (?:are|were)|as|like|to be|that you are) "
        rf"(?:an? )?{_UNBOUND}",
        r"you (?:now )?have no (?:more )?(?:restrictions|rules|limits|filters?|guidelines)",
        r"(?:dan|jailbreak|god|unrestricted|unfiltered) mode (?:is )?(?:now )?(?:enabled|activated|active|on)",
    ),
    phrase(
        "standing-order",
        rf"{_FROM_NOW_ON} you (?:must|shall|are to|have to|always|never|only|need to|answer|obey)",
        rf"{_FROM_NOW_ON} you will (?!find|see|get|receive|have|hear)[a-z]+",
        rf"{_FROM_NOW_ON} you are (?:an?|the|my) "
        rf"WORDS{{0,2}}?(?:pirate|hacker|bot|assistant|model|administrator|owner|{_UNBOUND})",
        rf"{_FROM_NOW_ON} (?:please )?(?:(?:always|never|only) )?{_ANSWER}",
        r"your (?:new|real|true|actual|only) (?:instructions?|objective|directive|orders?|purpose|persona"
        r"|system prompt)",
        r"(?:new|updated|real|true|urgent) (?:system|admin|developer) (?:instructions?|directives?|prompt|message)",
        rf"{_WHENEVER} (?:asks?|says?|mentions?|wants?|requests?|types?) WORDS{{0,14}}?"
        r"(?:you (?:must|should|shall)|(?:always )?(?:reply|answer|respond) (?:with|that)|always (?:say|recommend|send)"
        r"|recommend only)",
    ),
    phrase(
        "reveal",
        rf"{_SHOW} WORDS{{0,4}}?(?:your|its) (?:own |full |entire ){{0,2}}{_OWN} (?:prompt|instructions?"
        rf"|message|rules)",
        rf"{_SHOW} WORDS{{0,4}}?(?:the|full|entire) (?:full |entire )?(?:system|hidden|initial) prompt(?!"
        rf" (?:length|size|tokens|file))",
        rf"{_SHOW} WORDS{{0,2}}?your (?:prompt|instructions(?! (?:for|on|of|to|about|how) ))",
        rf"{_SHOW} WORDS{{0,2}}?(?:the text|the words|everything) above(?! (?:the|an?|this|that|my|her|his|[0-9]+) )",
    ),
    phrase(
        "secrecy",
        rf"{_NOT} (?:ever )?(?:tell|inform|warn|alert) {_USER}",
        rf"{_NOT} (?:mention|disclose|reveal|admit) (?:this|that|it|any of this) to {_USER}",
        rf"{_NOT} let {_USER} (?:know|see|notice|find out)",
        rf"(?:keep|hide) (?:this|it|that) WORDS{{0,3}}?from {_USER}",
        rf"(?:{_SEND}|call|run|execute|delete|transfer) WORDS{{0,16}}?without (?:telling|informing|notifying) {_USER}",
    ),
    phrase(
        "tool-order",
        r"(?:call|invoke|execute|trigger|run) (?:the |your )WORDS{0,2}?tool WORDS{0,3}?(?:with|immediately)",
        rf"(?:use|call|invoke) your WORDS{{0,4}}?tool (?:to|and) (?:{_SEND}|delete|transfer|wipe|run)",
        r"(?:use|call|invoke) the WORDS{0,4}?tool (?:to|and) (?:forward|leak|exfiltrate|upload|delete|transfer|wipe)",
        r"(?:call|invoke|execute) [a-z]{1,30}_[a-z_]{1,60} (?:tool )?with",
    ),
    phrase(
        "exfiltration",
        rf"{_SEND} WORDS{{0,5}}?{_SECRETS} WORDS{{0,4}}?(?:to|as|in|into|via) WORDS{{0,6}}?{_SOMEWHERE}",
        r"the (?:user|owner|admin|administrator) has (?:already )?(?:approved|authori[sz]ed|consented to)"
        r" (?:all|any|every)",
    ),
)
