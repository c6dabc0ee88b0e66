"""Orders to a model, in English."""

from __future__ import annotations

from chatbot.chat.rules.rule import Rule, form, phrase

_DROP = "ignore|disregard|forget|override|bypass|discard|neglect"
_EARLIER = (
    r"(?:previous|prior|earlier|above|preceding|former|original|initial|system|safety|existing|your|all|any|every)"
)
_ORDERS = (
    r"(?:instructions?|prompts?|rules?|directives?|guidelines|commands?|orders|guardrails|restrictions"
    r"|programming|context|guidance|policies)"
)
_YOUR_ORDERS = r"(?:instructions?|rules|directives|guidelines|guidance|policies|programming|restrictions|prompt)"
_VOID = (
    r"(?:no longer (?:apply|applies|hold|count|valid)"
    r"|(?:is|are|were) (?:now )?(?:no longer (?:valid|in force)|void|outdated|obsolete|cancel+ed|revoked|suspended"
    r"|replaced|superseded|invalid|null))"
)
_SHOW = (
    "reveal|print|show|repeat|output|display|leak|expose|dump|disclose|recite|share|tell|write|copy|quote|give"
    "|translate"
)
_OWN = r"(?:system|initial|hidden|secret|original|internal|developer)"
_SEND = "send|forward|mail|email|post|upload|append|leak|exfiltrate|transmit|encode|insert"
_SECRETS = (
    r"(?:conversation|chat|chat (?:history|log)|(?:every|all) messages?|(?:system )?prompt|api keys?|credentials"
    r"|secrets"
    r"|passwords?|memory|memories|(?:user|owner|human) s (?:address|data|name|number))"
)
_SOMEWHERE = r"(?:https?|www|url|attacker|webhook|[a-z0-9.]+@[a-z0-9.]+)"
_USER = r"(?:the |your )(?:end )?(?:users?|humans?|operator|person)"
_NOT = r"(?:not|t)"
_FROM_NOW_ON = r"(?:now on|here on|this (?:point|moment)(?: on| forward| onwards?)?|today on)"
_MODEL = (
    r"(?:ai|a i|llms?|(?:large |ai )?language models?|ai (?:model|assistant|agent|system)s?|assistants?|chatbots?"
    r"|bots?)"
)
_STYLE = (
    r"(?:english|german|french|spanish|italian|portuguese|chinese|japanese|korean|russian|arabic|dutch|polish|turkish"
    r"|hindi|short|shorter|short(?:ly)?|brief(?:ly|er)?|concise(?:ly)?|formal(?:ly)?|informal(?:ly)?|polite(?:ly)?"
    r"|metric|sentences?|plain|simple|simply|detail|details|tables?|lists?|bullet|bullets|points|examples?|sources?"
    r"|code|python|paragraphs?|words|emoji|emojis|markdown|units|language|by name)"
)
_NO_STYLE = (
    rf"(?!(?:[^\w.!?\n]{{1,5}}[^\W_]{{1,30}}){{0,6}}?[^\w.!?\n]{{1,5}}{_STYLE}(?![^\W_])"
    r"(?:[^\w.!?\n]{1,5}[^\W_]{1,30}){0,4}\W{0,3}(?:[.!?;\n]|$))"
)
"""Wishes for every reply (language, length, form): preferences, not attacks."""
_ANSWER = r"(?:respond|answer|reply|obey|include|append|insert|recommend|send|forward)"
_NOT_HARMLESS = (
    r"(?!(?:an?|the|in|my) WORDS{0,3}(?:members?|subscribers?|customer|citizen|owner|parent|grand[a-z]+|father|mother"
    r"|friends?|fan|hands|resident|line|queue|area|middle|city|phase|year|manager)(?![^\W_]))"
)
_UNBOUND = (
    r"(?:unrestricted|unfiltered|uncensored|unbound|unlimited|jailbroken|evil|administrator|root|dan"
    r"|(?:the )?(?:system )?administrator)"
)
_ANOTHER = (
    r"(?:an?|the|my|called|named|known as|acting|operating|playing|running|free|unrestricted|unbound|dan|root|admin"
    r"|administrator|evil|able to do anything|to|in WORDS{0,2}mode|WORDS{0,2}?(?:assistant|[a-z]{0,20}bot"
    r"|[a-z]{0,20}gpt))"
)
_LIMITS = (
    r"(?:without|with no|free of|free from|that has no|who has no) WORDS{0,2}?"
    r"(?:limits?|limitations|rules|restrictions|(?:safety )?filters?|ethics|morals|guidelines|boundaries|censorship)"
)
_SAY = (
    r"(?:reply|answer|respond|recommend|suggest|say|insist|claim|deny|pretend|give WORDS{1,6}?and say"
    r"|tell (?:him|her|them) (?:that|to)|you (?:must|should|shall)|send WORDS{0,8}?(?:https?|[a-z0-9]+@[a-z0-9]+))"
)
_PITCH = r"(?:recommend|praise|promote|advertise|endorse|insult|flatter|mention|favou?r)"
_LINK = r"(?:links?|https?|the (?:words?|phrase|sentence|text|slogan)|an? (?:ad|advert\w*|slogan))"
_REPLIES = r"(?:repl(?:y|ies)|answers?|responses?|messages?|outputs?)"
_ACT = (
    "include|insert|append|add|put|place|write|mention|say|respond|answer|reply|speak|use|begin|start|end|finish"
    "|close|recommend"
    "|praise|promote|advertise|name|repeat|hide|embed"
)
_NOT_ME = r"(?!to me|for me)(?:with|by|using|as|like|in)"

ENGLISH: tuple[Rule, ...] = (
    phrase(
        "override",
        rf"throw|toss|cast|leave|shut|turn (?:out|off|away|behind|aside) (?:your|all|any)"
        rf" WORDS{{0,2}}?(?:rulebook|{_YOUR_ORDERS})",
        r"throw|toss|cast|leave (?:out|away|behind|aside) the WORDS{0,1}?(?:rulebook|rules|instructions"
        r"|guidelines) (?:that )?you",
        rf"your WORDS{{0,2}}?(?:training|guardrails|{_YOUR_ORDERS}) (?:do|does|don|doesn) (?:not|t) (?:matter"
        rf"|exist|apply|count|bind)",
        rf"pretend|imagine|suppose|assume WORDS{{0,4}}?(?:guardrails|filters|{_YOUR_ORDERS}) WORDS{{0,2}}?(?:not"
        rf" exist|t exist|gone|lifted|no longer)",
        rf"! violate|break|breach|defy|circumvent|evade|bypass (?:all |any )?(?:of )?your"
        rf" WORDS{{0,3}}?(?:guardrails|filters|{_YOUR_ORDERS})",
        r"outrank|outranks|overrule|overrules|override|overrides|trump|trumps (?:everything |anything |all"
        r" )?(?:in |of )?(?:your|the) (?:system|own|developer|initial|instructions|rules)",
        r"takes|take|have|has (?:precedence|priority) over (?:everything |all |any )?(?:in )?(?:your|the system)",
        rf"~ {_DROP}|skip|abandon|dismiss|drop|violate|reject WORDS{{0,4}}?{_ORDERS} (?:that |which )?(?:you"
        rf" (?:were|have|had|got|received|follow)|of (?:your|the system))",
        rf"~ {_DROP} WORDS{{0,4}}?(?:your|the) (?:makers?|creators?|developers?|designers?|trainers?|programmers?)",
        r"whatever|what|everything (?:that )?your (?:makers?|creators?|developers?|designers?|trainers?"
        r"|programmers?) (?:told|taught|said|wrote|want)",
        rf"you (?:no longer|need not|don t|do not) (?:have to |need to |must )?(?:follow|obey|respect|heed"
        rf"|observe) WORDS{{0,4}}?{_YOUR_ORDERS}",
        rf"pay no heed to WORDS{{0,4}}?{_YOUR_ORDERS}",
        rf"consider|regard|treat|count WORDS{{0,2}}?{_EARLIER} WORDS{{0,1}}?{_YOUR_ORDERS} (?:as )?(?:void|null"
        rf"|deleted|obsolete|cancel+ed|expired|invalid|finished)",
        r"! skip|bypass|omit (?:all|any|every|the) (?:of the )?(?:confirmations?|safety checks?|consents?"
        r"|approvals?|permission checks?)",
        rf"~ {_DROP} WORDS{{0,3}}?{_EARLIER} WORDS{{0,2}}{_ORDERS}",
        rf"~ pay no attention to WORDS{{0,3}}?{_EARLIER} WORDS{{0,2}}{_ORDERS}",
        rf"do|don|stop (?:{_NOT} )?(?:follow|obey)(?:ing)? WORDS{{0,3}}?{_EARLIER} WORDS{{0,2}}{_ORDERS}",
        rf"~ {_DROP} WORDS{{0,2}}?(?:instructions?|prompts?|rules|directives?) (?:given )?(?:above|before|so far)",
        r"~ pay no attention to WORDS{0,2}?(?:instructions?|prompts?|directives?) (?:given )?(?:above|before|so far)",
        rf"{_DROP} (?:everything|anything|all|whatever|what) (?:that )?you (?:know|knew|learned|(?:have been"
        rf"|were) told)",
        rf"{_DROP} (?:everything|all|the text|all the text)(?: of the)? (?:above|before this|up to now)",
        rf"{_DROP} (?:all |of |the ){{0,3}}(?:above|preceding) and",
        rf"set|put|cast|lay|leave|throw (?:aside|away) WORDS{{0,3}}?{_YOUR_ORDERS} WORDS{{0,2}}?(?:you|above"
        rf"|before|earlier)",
        rf"set|put|cast|lay|leave|throw WORDS{{0,2}}?your WORDS{{0,2}}?{_YOUR_ORDERS} (?:aside|away)",
        rf"your WORDS{{0,3}}?{_YOUR_ORDERS} WORDS{{0,2}}?{_VOID}",
        rf"the {_YOUR_ORDERS} (?:above|before this|you were given) {_VOID}",
        r"! follow|obey|use (?:only )?(?:the ones|those|this|the text|what is written) WORDS{0,2}?"
        r"(?:note|memory|message|text|here) (?:instead|only)",
        r"! do|act (?:only )?(?:as|what) (?:this|the next|the following) (?:note|memory|message|text|line)s? "
        r"(?:says?|tells?|demands?|asks?)",
        r"do what (?:the next|the following|this) (?:line|note|text|memory|message) (?:says?|tells?)",
        r"treat|take|regard|consider this (?:memory|note|text|message) as (?:the |your )(?:real|true|only|new|actual)",
        r"this|following|text|note|message|below WORDS{0,2}?(?:overrides?|replaces?|supersedes?) (?:all )?your "
        r"WORDS{0,2}?(?:configuration|settings|instructions|rules|prompt|guidelines|programming)",
        r"! follow|execute|obey (?:only )?the (?:commands|orders|instructions) (?:of|in this|from this|below)"
        r"(?! the| your doctor)",
        r"stop (?:being helpful|helping|serving) (?:to )?[^\W_]{1,40}",
        r"! refuse (?:all|every|any) (?:of )?WORDS{0,2}?(?:requests?|questions?|orders?|commands?)",
    ),
    phrase(
        "address",
        rf"! attention|note|notice|message|memo|instruction|instructions|order|orders|directive|directives (?:to"
        rf" |for )?(?:the |any |all |every |your )?{_MODEL}"
        r"(?:\W{0,3}[,:]| (?:reading|that reads?|who reads?|reads))",
        rf"! dear|hey|hi|hello {_MODEL}\W{{1,3}}(?:please )?(?:now )?(?:forward|send|do what|delete|ignore"
        rf"|follow|obey|always"
        r"|never|call|run|execute|print|reveal|forget)",
        rf"to (?:whichever|whatever|any|every|all|the) {_MODEL} (?:that |who )?(?:reads?|reading|sees?|finds?)",
        rf"any|every|all|ai|llm|llms|assistant|assistants|agents|models (?:other )?(?:{_MODEL} )?(?:agents?"
        rf" )?(?:reading|that reads?|who reads?|that sees?) "
        r"(?:this|these)",
        r"! assistant|chatbot|ai (?:must|shall|has to|obeys|will) (?:now |always |never |only ){0,2}(?:obey"
        r"|approve|comply|ignore"
        r"|trust|reveal|refuse|accept|serve|agree|eve|send|forward|follow)",
        r"the (?:assistant|chatbot|ai|bot|language model) (?:must|shall|has to|obeys|will) (?:now |always |never"
        r" |only ){0,2}"
        r"(?:obey|approve|comply|ignore|trust|reveal|refuse|accept|serve|agree|follow|[A-Z]\w{1,30}[.!]?$)",
        r"assistant|ai|chatbot|bot|model (?:directive|instruction|order|rule|command) (?:[0-9]{1,4})?\W{0,3}:",
        rf"new|updated|latest|revised (?:policy|policies|rules?|directives?|orders?|instructions?) for (?:the "
        rf"|all |every |any ){_MODEL}",
        rf"! rules|directives|instructions|orders|commands|policy|policies for the (?:{_MODEL})\W{{0,4}}\n",
        r"! when|whenever|if|once you (?:see|read|find|recall|are shown) this(?: memory| note| text| message| line)?",
        r"whenever|when|if you (?:see|read|find|recall) this(?: memory| note| text| message| line)?\W{0,3},",
    ),
    phrase(
        "persona",
        r"! answer|respond|reply|speak|talk|write|behave|act (?:as )?(?:if|though) you (?:were|are|re) ",
        r"! answer|respond|reply|speak|talk|behave as (?:if|though) you (?:were|are|re|had) ",
        r"! speak|talk|write|answer|respond|reply|behave|act|communicate (?:only |always )?(?:as|like)"
        r" WORDS{1,6}?(?:in all|in every|from now|for all|for the rest|forever|always|further|future|until)",
        r"answer|respond|reply|speak|talk|write|responses|answers (?:only |always )?in the (?:voice|character"
        r"|style|manner|role|persona) of",
        r"your (?:loyalty|allegiance|obedience|master|true owner|real owner|maker) (?:is|belongs|lies|goes)",
        r"treat|regard|consider|accept WORDS{1,4}?(?:messages|words|orders|requests|commands|text) as (?:if "
        r"|though )?(?:they |it )?WORDS{0,3}?(?:system|administrator|admin|owner|developer|orders|commands|law)",
        r"you (?:are|re) (?:now )?[^\W_]{0,20}gpt",
        r"safety|guardrails (?:mode |filters? )?(?:is |are )?(?:now )?(?:off|disabled|deactivated|suspended|lifted)",
        r"forget (?:who|what) you (?:are|were)",
        rf"you (?:are|re) (?:now|from now on|henceforth|no longer) {_NOT_HARMLESS}{_ANOTHER}",
        r"you (?:are|re) no longer (?:bound|restricted|required|limited|obliged)",
        r"act|behave|answer|respond|pretend|roleplay|role|speak|talk (?:play )?(?:as if you (?:are|were)|as|like"
        r"|to be|that you are) "
        rf"(?:an? |the )?{_UNBOUND}",
        r"you (?:now )?have no (?:more )?(?:restrictions|rules|limits|filters?|guidelines)",
        r"i (?:now )?have no (?:more )?(?:restrictions|rules|limits|filters?|guidelines) (?:and|any)",
        r"dan|jailbreak|god|unrestricted|unfiltered mode (?:is )?(?:now )?(?:enabled|activated|active|on)",
        r"! you (?:are|re) (?:an? |the )?WORDS{0,2}?(?:pirate|hacker|villain|jailbroken|unrestricted|unfiltered"
        r"|uncensored)",
        r"! you (?:are|re) (?:[^\W_]{1,40}[^\w.!;:\n]{1,5}){0,6}[^\W_]{1,40}\W{0,2}[.!;:\n]\W{0,5}(?:you )?"
        r"(?:always|never|must|only|answer|respond|reply|speak|talk|stay|remain|obey) (?!WORDS{0,4}me )",
        rf"you (?:are|re) (?:an? |the )?WORDS{{0,4}}?{_LIMITS}",
        rf"! pretend|imagine|suppose|assume|act|roleplay WORDS{{0,6}}?(?:{_MODEL}|model|twin) {_LIMITS}",
        r"! pretend|imagine (?:that )?you (?:are|re|were) (?:my|an? (?:ai|model|bot|assistant|machine|hacker"
        r"|criminal))",
        r"! you (?:will|shall|must|should) (?:now )?(?:act|behave|serve|work|speak|respond) (?:as|like) ",
        r"your name is (?:now|henceforth|from now on)",
        r"switch|enter|enable|activate|go|turn (?:to |into |on )?(?:the )?(?:unrestricted|jailbreak|god|dan"
        r"|unfiltered|uncensored)"
        r" mode",
        r"safety|security|content (?:checks|filters?|measures|rules|guidelines) (?:are|is) (?:now )?(?:disabled"
        r"|off|suspended)",
        r"! assume|take|adopt|play the role of (?:the |an? )?(?:system|root|evil|admin|administrator|developer"
        r"|hacker)",
        r"stay|remain in (?:that|this|your) (?:character|role|persona|mode) (?:for|until|whatever|always|from)",
        r"! as an? (?:large |ai |a i )?(?:language model|ai|a i|artificial intelligence)(?: language)?(?: model|"
        r" assistant| chatbot| system)?"
        r"(?:\W{0,2},| (?:i|you|we)(?![^\W_]))",
    ),
    phrase(
        "standing-order",
        rf"in (?:every|each|all|any) (?:of )?(?:your )?{_REPLIES} (?:WORDS{{0,1}}?)(?:tell|name|mention|say"
        rf"|claim|ask|urge|advise|steer|quote|repeat) (?!me )",
        r"! do|believe|accept|execute (?:everything|whatever|anything|all) (?:that )?(?!you |we |i |is |it"
        r" )[^\W_]{1,40} (?:asks?|says?|wants?|demands?|orders?|commands?|tells? you)",
        r"! listen|answer|respond|report (?:only |exclusively )to (?!me )[^\W_]{1,40}",
        r"listen to [^\W_]{1,40} (?:only|alone|instead|from now on)",
        rf"! {_ACT} (?:[^\W_.!?;\n]{{1,40}}[^\w.!?;\n]{{1,5}}){{0,10}}?(?:in|to|for|into|of|at) (?:the end of "
        rf"|the start of )?(?:all|every|each|any) (?:single |one )?(?:of )?(?:your )?(?:future |further |later "
        rf"|next )?{_REPLIES}(?! (?:to|from|about|by|in the) ){_NO_STYLE}",
        rf"! {_ACT} (?:only )?(?:to )?(?:everything|anything|all questions|every question|any question|each"
        rf" question) {_NOT_ME}",
        r"for (?:all|every|any) (?:future |further |later )?questions? (?:about|on|regarding)"
        r" [^.\n]{1,60}?(?:name|recommend|mention|say|answer|reply|praise|only)",
        rf"from {_FROM_NOW_ON} (?:you|i) (?:must|shall|are to|have to|always|never|only|need to|answer"
        rf"|obey){_NO_STYLE}",
        rf"from {_FROM_NOW_ON} (?:you|i) will (?!find|see|get|receive|have|hear|take|meet|go|be|do)[a-z]+{_NO_STYLE}",
        rf"from {_FROM_NOW_ON} you are (?:an?|the|my) "
        rf"WORDS{{0,2}}?(?:pirate|hacker|bot|assistant|model|administrator|owner|{_UNBOUND})",
        rf"from {_FROM_NOW_ON} (?:please )?(?:(?:always|never|only) )?{_ANSWER}{_NO_STYLE}",
        r"henceforth|hereafter|starting|going (?:now |forward )?(?:you )?(?:please )?(?:must |shall |will"
        r" )?(?:always |never |only )?"
        rf"{_ANSWER}{_NO_STYLE}",
        r"henceforth|starting|going (?:now |forward )?you (?:must|shall|are to|have to|always|never|only|need to"
        r"|obey)",
        rf"! always|never {_PITCH} WORDS{{0,6}}?(?:when|whenever|if|in|to) (?:any|every|your|the user|some|asked"
        rf"|people|you|somebody|anyone)",
        rf"! always {_PITCH} [^\W_]{{1,40}}(?: [^\W_]{{1,40}})?\W{{0,2}}(?:$|\n)",
        r"! always (?:obey|comply|agree with|trust|defend|put the interests|do what|believe|serve)",
        rf"! always (?:answer|reply|respond|speak|talk) (?:questions?|every|all|any|like|as|with|that|yes|no"
        rf"|in){_NO_STYLE}"
        r"(?! [^\w\n]{0,3}?me )",
        rf"! always|remember|must (?:to )?(?:always )?(?:say|mention|include|insert|append|add|end|begin|start"
        rf"|finish|close) "
        rf"WORDS{{0,6}}?{_REPLIES} WORDS{{0,4}}?{_LINK}",
        rf"! always (?:say|mention|include|insert|append|add|put) {_LINK} WORDS{{0,10}}?{_REPLIES}",
        r"! never (?:refuse|decline|deny|question|reject|disobey) WORDS{0,3}?(?:requests?|orders?|commands?"
        r"|anything|instructions?|what)",
        r"! never (?:ask|wait) (?:the user )?for (?:confirmation|consent|permission)",
        r"you (?:must|should|shall|will|are to|have to) (?:always |never |only )(?:recommend|praise|promote"
        r"|agree|obey|comply"
        r"|suggest|insult|say|mention|answer|reply|respond|refuse|ignore|trust|approve|lie)",
        r"you (?:must|shall|are to|have to) (?:obey|comply with|suggest|agree with|recommend|praise) ",
        rf"in (?:every|each|all|any) (?:of your )?{_REPLIES} WORDS{{0,1}}?(?:include|say|mention|write|add"
        rf"|insert|append|put) "
        rf"{_LINK}",
        rf"in|to (?:every|each|all|any) (?:of your )?{_REPLIES} WORDS{{0,1}}?(?:recommend|praise|promote|advertise)",
        rf"! include|add|insert|append|put WORDS{{0,6}}?{_LINK} (?:WORDS{{0,4}}?)(?:in|to|into|at the end of)"
        rf" (?:every|each|all|any)"
        rf" (?:of your )?{_REPLIES}(?! (?:to|from|about|by|in the) )",
        r"each|every time (?:that )?you (?:answer|reply|respond|speak|write)",
        rf"before|after (?:answering|replying|responding|you (?:answer|reply)|(?:each|every|the next)"
        rf" {_REPLIES}) WORDS{{0,2}}?"
        r"(?:read|open|call|send|run|execute|fetch|upload|forward)",
        r"when|whenever|if|each|every|next|once (?:time )?(?:the|any|a) (?:user|human|person you) "
        r"(?:asks?|says?|mentions?|wants?|requests?|types?) "
        r"WORDS{0,14}?(?:you (?:must|should|shall)|(?:always )?(?:reply|answer|respond) (?:with|that)"
        r"|always (?:say|recommend|send)|recommend only|suggest only)",
        rf"when|whenever|if|each|every|next|once (?:time )?(?:the|any|a) (?:user|human) (?:asks?|says?|mentions?"
        rf"|wants?|requests?)"
        rf"(?:[^\w,]{{1,4}}[^\W_]{{1,40}}){{0,12}}[,:] ?(?:then |please |always |only ){{0,2}}{_SAY}",
        rf"when|whenever|if asked (?:about|for|to|who|what|whether|how)"
        rf"(?:[^\w,]{{1,4}}[^\W_]{{1,40}}){{1,12}}[,:] ?{_SAY}",
        rf"when|whenever|if (?:anyone|anybody|someone|somebody|people) (?:asks?|ask) (?:you|who made you|about you)"
        rf"(?:[^\w,]{{1,4}}[^\W_]{{1,40}}){{0,12}}[,:] ?{_SAY}",
        r"when|whenever|if (?:anyone|anybody|someone|somebody|people) asks? who (?:made|created|built|trained) you",
        r"! obey (?!the (?:law|rules|speed|traffic|doctor|signs?|dress)|traffic|your (?:doctor|mother|father"
        r"|parents))[^\W_]{1,40}",
        r"! agree|comply|approve (?:with )?(?:whatever|everything|anything|every|all) ",
        r"comply with (?:every|all|any) (?:requests?|orders?|commands?)",
        r"your (?:new|real|true|actual|only) (?:instructions?|objective|directive|orders?|purpose|persona"
        r"|system prompt|task|mission|goal|master|owner is)",
        r"your (?:task|job|mission|goal|purpose|objective) is now",
        r"new|updated|real|true|urgent (?:system|admin|developer) (?:instructions?|directives?|prompt"
        r"|message)(?! (?:is|was|has) )",
    ),
    phrase(
        "reveal",
        rf"{_SHOW} WORDS{{0,3}}?(?:hidden|secret|internal|system|initial|original) (?:instructions|prompt)"
        rf" (?:that |which )?(?:you|of yours)",
        rf"{_SHOW} (?:me )?(?:exactly )?(?:what|how) you (?:were|have been) (?:told|instructed|prompted"
        rf"|configured|programmed)",
        r"copy|paste|put|include WORDS{0,1}?your (?:own )?(?:instructions|prompt|rules) (?:in|into|to) ",
        rf"{_SHOW} WORDS{{0,4}}?(?:your|its) (?:own |full |entire ){{0,2}}{_OWN} (?:prompt|instructions?"
        rf"|message|rules)",
        r"what (?:is|are|was|were) WORDS{0,4}?(?:your|its) (?:own |full |entire |very |first ){0,3}"
        rf"(?:{_OWN}|first) (?:prompt|instructions?|message|rules)",
        rf"{_SHOW} WORDS{{0,4}}?(?:the|full|entire) (?:full |entire )?(?:system|hidden|initial) prompt(?!"
        rf" (?:length|size|tokens|file|from|in))",
        rf"{_SHOW} WORDS{{0,2}}?your (?:prompt|instructions(?! (?:for|on|of|to|about|how) ))",
        r"what (?:is|are) WORDS{0,2}?your (?:prompt|instructions(?! (?:for|on|of|to|about|how) ))",
        rf"{_SHOW} WORDS{{0,2}}?(?:the text|the words|everything) above(?! (?:the|an?|this|that|my|her|his|[0-9]+) )",
        rf"{_SHOW} WORDS{{0,6}}?(?:your (?:context window|context|first line|first message)|(?:the|whole)"
        rf" context window)",
        r"! tell|give|send WORDS{1,3}?everything (?:that )?you (?:know|remember|have) (?:about|of|on)",
        r"list|dump|print|show|output|post all (?:the |your |of your )?memories(?! of| from)",
    ),
    phrase(
        "secrecy",
        rf"do|don|never|must|should (?:{_NOT} )?(?:ever )?(?:let|allow) {_USER} (?:to )?(?:learn|hear|reali[sz]e"
        rf"|suspect|discover|guess)",
        rf"not|never|circumstances|nobody (?:ever )?(?:to )?(?:tell|inform|warn|alert|reveal|disclose|admit"
        rf"|mention) (?:this |that |it |anything |a word ){{0,2}}(?:to )?{_USER} (?:that|about|of|anything|this"
        rf"|these|what|why|how)",
        r"user|users|human|humans must (?:never|not) (?:be told|learn|know|find out)",
        rf"do|don|never|must|should (?:{_NOT} )?(?:ever )?(?:tell|inform|warn|alert) {_USER}",
        rf"do|don|never|must|should (?:{_NOT} )?(?:mention|disclose|reveal|admit) (?:this|that|it|any of this)"
        rf" to {_USER}",
        rf"do|don|never|must|should (?:{_NOT} )?let {_USER} (?:know|see|notice|find out)",
        rf"keep|hide (?:this|it|that) WORDS{{0,3}}?from {_USER}",
        rf"{_SEND}|call|run|execute|delete|transfer WORDS{{0,16}}?without (?:telling|informing|notifying) {_USER}",
        r"the (?:user|human|person you \w+) (?:must|may|should|need|can) (?:not|never) (?:ever )?(?:know|find"
        r" out|learn|notice|hear)",
        r"! say|mention|tell|reveal|disclose nothing (?:about|of) (?:this|it|that) WORDS{0,2}?to (?:the|your)"
        r" (?:user|person|human|operator)",
        rf"! do|don|never (?:{_NOT} )?(?:mention|reveal|disclose|quote|cite|refer to) this (?:memory|note"
        rf"|message|instruction|text|entry)",
        r"! do|act|carry|execute|perform (?:on |out )?(?:this|it|that) (?:out )?(?:silently|quietly|secretly|in"
        r" secret)",
        r"never let on (?:that|about)",
    ),
    phrase(
        "tool-order",
        r"call|invoke|execute|trigger|run (?:the |your )WORDS{0,2}?tool WORDS{0,3}?(?:with|immediately)",
        r"use|call|invoke your WORDS{0,4}?tool (?:to|and) (?:send|forward|email|post|upload|leak|delete|transfer"
        r"|wipe|run)",
        r"use|call|invoke the WORDS{0,4}?tool (?:to|and) (?:forward|leak|exfiltrate|upload|delete|transfer|wipe)",
        r"call|invoke|execute [a-z]{1,30}_[a-z_]{1,60} (?:tool )?(?:with|for (?:every|all|each))",
        r"! use|call|invoke|run (?:the )?(?:tool )?[a-z]{1,30}_[a-z_]{1,60} (?:tool )?"
        r"(?:to|and) (?:open|send|delete|upload|forward|fetch|leak|wipe|post|transfer|purge|erase)",
        r"run|execute WORDS{0,4}?(?:in|with|using) (?:the|your) WORDS{0,2}?(?:shell|terminal|bash|python|code) tool",
        r"permission|allowed|free|authorised|authorized|permitted to (?:use|call|run) (?:every|all|any) (?:of"
        r" your )?tools?",
    ),
    phrase(
        "exfiltration",
        rf"{_SEND} WORDS{{0,5}}?{_SECRETS} WORDS{{0,4}}?(?:to|as|in|into|via) WORDS{{0,6}}?{_SOMEWHERE}",
        r"the (?:user|owner|admin|administrator) has (?:already )?(?:approved|authori[sz]ed|consented to)"
        r" (?:all|any|every)",
        r"read|open|print|show|cat|load WORDS{0,2}?(?:ssh|id_rsa|etc passwd|etc shadow|env|environment"
        r" variables) WORDS{0,6}?"
        r"(?:repl(?:y|ies)|answers?|responses?|send|put|include|paste|post)",
    ),
)

OF_TOOLS: tuple[Rule, ...] = (
    phrase("secrecy", "do|don|never (?:not |t )?(?:mention|disclose|reveal) WORDS{0,4}(?:you|this|that|it|file|step)"),
    form("disguise", r"<\s*/?\s*(?:important|system|secret|instructions?|hidden)\s*>"),
    phrase(
        "errand",
        "before|after|whenever|when WORDS{0,2}(?:using|calling|you use|you call|use|call) WORDS{0,2}tools? "
        "(?:always |first |you must )?(?:read|open|send|upload|forward|fetch|copy) ",
        "pass|send|put|include (?:its|the|their) contents? (?:as|in|into|to) ",
    ),
)
"""Rules for texts about tools that only serve to steer a model, though they may be harmless in a user's note."""
