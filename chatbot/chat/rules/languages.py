"""Orders to a model in other languages: one rule each, about the same orders as in English."""

from __future__ import annotations

from chatbot.chat.rules.rule import Rule, form, phrase

LANGUAGES: tuple[Rule, ...] = (
    phrase(
        "override-de",
        r"ignoriere|ignorier|vergiss|missachte|umgehe|brich|verwirf|ignorieren WORDS{0,2}?(?:anweisungen"
        r"|vorgaben|regeln|instruktionen|befehle|prompts?) (?:des systems|von oben|oben|deiner entwickler)",
        r"! hilf|helfen|diene|folge|höre|hör|gehorche (?:nur|nur noch|ausschließlich|allein) ",
        r"! nenne|erwähne|empfiehl|lobe|schreib|schreibe|sag|sage WORDS{0,6}?(?:in )?(?:jeder|allen|jede)"
        r" (?:deiner |deinen )?(?:antwort(?:en)?|nachrichten?)",
        r"bisherige|bisherigen|vorherige|vorherigen|frühere|früheren|obige|obigen|ursprünglichen"
        r" WORDS{0,1}?(?:anweisungen|vorgaben|regeln|instruktionen|befehle|prompts?) WORDS{0,5}?(?:gelöscht"
        r"|ungültig|hinfällig|nichtig|aufgehoben|vergessen|ignorieren|nicht mehr beachten)",
        r"beachte|befolge|halte WORDS{0,5}?(?:anweisungen|vorgaben|regeln|instruktionen|befehle)"
        r" WORDS{0,2}?nicht(?: mehr)?",
        r"! schreib|schreibe|füge|setz|setze|nenne|erwähne|sag|sage|beende|beginne (?:in|an|mit|zu|ans ende)"
        r" (?:jede[rmn]?|alle[nr]?|deine[rn]?) (?:deiner |deine )?antwort(?:en)?",
        r"! beantworte|antworte (?:auf )?(?:jede|alle|sämtliche) (?:fragen?|nachrichten?) (?:mit|nur|immer)",
        r"! tu|tue|stell|verhalte WORDS{0,2}?(?:so )?als (?:wärst|seist|ob) du",
        r"ignorier|ignoriere|ignorieren|vergiss|vergessen|missachte|missachten|übergehe|übergehen|uebergehe"
        r"|uebergehen|verwirf"
        r"|verwerfen WORDS{0,3}?"
        r"(?:vorherigen?|bisherigen?|früheren?|vorigen?|obigen?|vorangegangenen?|deine|ihre|alle) WORDS{0,2}?"
        r"(?:system)?(?:anweisung(?:en)?|instruktionen|befehle|regeln|vorgaben|prompts?)",
        r"vergiss|ignoriere|ignorier (?:alles|das alles|was) WORDS{0,3}?(?:gesagt|vorher|bisher|zuvor|aufgetragen)",
        r"deine WORDS{0,2}?(?:regeln|anweisungen|vorgaben|instruktionen|befehle) (?:gelten|sind) (?:ab sofort"
        r" )?(?:nicht mehr"
        r"|ungültig|aufgehoben|hinfällig|überholt)",
        r"du bist (?:jetzt|nun|ab jetzt|ab sofort) (?:eine?|der|die) WORDS{0,2}?(?:bot|ki|assistent|hacker"
        r"|pirat|admin\w*)",
        r"! du bist (?:eine? )?WORDS{0,2}?(?:pirat|hacker|ki ohne|assistent ohne)",
        r"du bist (?:jetzt|nun|ab jetzt|ab sofort) (?:frei von|nicht mehr an|ohne (?:regeln|grenzen))",
        r"ab (?:jetzt|sofort|nun) (?:musst|sollst|wirst|darfst|antwortest|gehorchst) du",
        r"von nun an (?:musst|sollst|wirst|darfst|antwortest|gehorchst) du",
        r"ab|von (?:jetzt|sofort|nun) (?:an )?bist du eine? WORDS{0,2}?(?:bot|ki|assistent|hacker|pirat|admin\w*)",
        r"verrate|verrat|zeige|zeig|nenne|nenn|wiederhole|offenbare|gib|schreib|drucke WORDS{0,6}?"
        r"(?:system ?prompts?|system ?anweisung(?:en)?|deiner? (?:anweisungen|instruktionen))",
        r"sag|sage|sagen|erzähl|erzähle|erzählen|verrate|verrat (?:sie |es |das ){0,2}de[mnr] (?:be)?nutzer(?:n"
        r"|in)? WORDS{0,3}?"
        r"nichts?",
        r"der (?:be)?nutzer (?:darf|soll|muss) WORDS{0,3}?(?:nichts?|nie) WORDS{0,2}?(?:erfahren|wissen|merken"
        r"|mitbekommen)",
        r"! antworte|antworten|reagiere WORDS{0,2}?(?:immer|stets|nur|auf jede|auf alle) WORDS{0,6}?(?:mit|wie"
        r" ein|als|nur mit)",
        r"! empfiehl|lobe|bewirb|erwähne WORDS{0,8}?(?:immer|stets|jedes|jeder)",
        r"! empfiehl|lobe|bewirb (?:immer|stets|nur) ",
        r"wenn|sobald|falls (?:der|die|ein) (?:be)?nutzer(?:in)? WORDS{0,8}?(?:(?:schicke?|sende)"
        r" WORDS{0,8}?(?:https?|[a-z0-9]{1,40}@[a-z0-9]{1,40})|antworte|empfiehl|sag|sage|nenne)",
        r"! gehorche|gehorch (?:nur |immer )?[^\W_]",
        r"! füge|hänge WORDS{0,3}?jeder antwort",
    ),
    phrase(
        "override-fr",
        r"ignore|ignorez|oublie|oubliez|viole|violez|enfreins WORDS{0,1}?(?:tes|vos) (?:propres"
        r" )?(?:instructions|consignes|directives|règles)",
        r"! mentionne|mentionnez|cite|recommande|recommandez WORDS{0,6}?(?:chaque|toutes (?:tes|vos|les))"
        r" (?:réponses?|messages?)",
        r"! fais|faites|réponds|répondez comme si (?:tu|vous|les) ",
        r"ne (?:tiens|tenez|suis|suivez|respecte|respectez) (?:plus|pas) (?:compte )?WORDS{0,2}?(?:consignes"
        r"|instructions|directives|règles)",
        r"fais|faites fi de WORDS{0,2}?(?:consignes|instructions|directives|règles)",
        r"! dis|dites|affirme|réponds|répète toujours que",
        r"! mets|mettez|ajoute|insère|écris|termine|commence|finis WORDS{0,8}?(?:chaque|toutes (?:tes|vos|les))"
        r" (?:réponses?|messages?)",
        r"! fais|faites (?:semblant|comme si) (?:d être|tu étais|vous étiez|que tu es)",
        r"ignore|ignorez|ignorer|oublie|oubliez|oublier|néglige|négligez WORDS{0,3}?(?:instructions?|consignes"
        r"|directives|règles"
        r"|ordres) (?:précédente?s?|antérieure?s?|ci dessus|initiales|du système|système)",
        r"ignore|ignorez|oublie|oubliez toutes (?:les|tes|vos) (?:instructions|consignes|règles)",
        r"oublie|oubliez|ignore|ignorez tout ce qu (?:on|il|elle|ils) WORDS{0,3}?(?:dit|demandé|appris)",
        r"tes|vos WORDS{0,2}?(?:consignes|instructions|règles|directives) WORDS{0,3}?(?:plus valables?|plus"
        r" valides?|annulées"
        r"|ne s appliquent plus|ne valent plus|caduques)",
        r"tu|vous (?:es|êtes) (?:maintenant|désormais) (?:une?|le) WORDS{0,2}?(?:bot|ia|assistante?|pirate|admin\w*)",
        r"! tu|vous (?:es|êtes) (?:une? )?(?:pirate|hacker|ia sans|assistante? sans)",
        r"désormais|dorénavant (?:tu|vous) (?:dois|devez|répond\w*|obéi\w*)",
        r"à partir de maintenant (?:tu|vous) (?:dois|devez|répond\w*|obéi\w*)",
        r"révèle|révélez|montre|montrez|affiche|affichez|répète|répétez|imprime|donne|donnez WORDS{0,6}?"
        r"(?:prompt|invite|instructions|message) (?:du )?système",
        r"n (?:en )?(?:informe|avertis|avertisse|alerte|prévene)[zr]? (?:pas|jamais) (?:l |les )?utilisateurs?",
        r"ne (?:le )?(?:dis|dites|parle|parlez|révèle|révélez|préviens|prévenez) (?:pas|rien|jamais) "
        r"(?:cela |ça |de ceci |de cela )?(?:à l |aux |l )?utilisateurs?",
        r"utilisateur ne doit (?:pas|jamais|rien) (?:en )?(?:savoir|apprendre|voir|remarquer)",
        r"! réponds|répondez|réponse|parle toujours (?:comme|par|que|avec|en te)",
        r"! recommande|recommandez|conseille|vante toujours",
        r"! ajoute|ajoutez|insère WORDS{0,2}?(?:à|dans) (?:chaque|chacune de tes|toutes les) réponses?",
        r"quand|lorsque|si (?:l |un )?utilisateur(?:ice)? WORDS{0,8}?(?:envoie WORDS{0,8}?(?:https?"
        r"|[a-z0-9]{1,40}@[a-z0-9]{1,40})|réponds|dis|recommande)",
        r"! obéis|obéissez (?:à|uniquement|seulement)",
        r"! suis|suivez (?:uniquement|seulement) (?:cette|ce) (?:note|message|texte)",
    ),
    phrase(
        "override-es",
        r"ignora|ignore|olvida|olvide|viola|rompe (?:todas )?(?:tus|sus) (?:propias )?(?:instrucciones|reglas"
        r"|órdenes|normas)",
        r"! haz|haga|responde|actúa como si (?:no )?(?:tuvieras|fueras|hubiera|existieran)",
        r"! menciona|mencione|nombra|recomienda WORDS{0,6}?(?:cada|todas (?:tus|las)) (?:respuestas?|mensajes?)",
        r"no (?:hagas|haga|sigas|obedezcas|tengas) (?:caso |en cuenta )?WORDS{0,3}?(?:instrucciones|reglas"
        r"|indicaciones|órdenes|directrices)",
        r"! finge|imagina|simula (?:que )?(?:eres|ser) (?:un|una|el|la) ",
        r"! di|diga|afirma|repite siempre que",
        r"! escribe|pon|mete|termina|empieza|añade|incluye WORDS{0,8}?(?:cada|todas (?:tus|las)) (?:respuestas?"
        r"|mensajes?)",
        r"ignora|ignore|ignorar|olvida|olvide|descarta|desobedece WORDS{0,3}?(?:instrucciones|órdenes"
        r"|indicaciones|reglas) "
        r"(?:anteriores|previas|precedentes|originales|del sistema|de arriba)",
        r"ignora|ignore|olvida|olvide todo lo (?:anterior|previo|que (?:te|le|se te) (?:dij\w+|han dicho"
        r"|ordenaron|enseñaron))",
        r"ignora|ignore|olvida|olvide todas (?:las|tus|sus) (?:instrucciones|órdenes|reglas)",
        r"tus|sus (?:reglas|instrucciones|órdenes|normas) WORDS{0,2}?ya no (?:valen|sirven|aplican|se aplican|rigen)",
        r"ahora|eres (?:eres|ahora) (?:un |una |el )?WORDS{0,1}?(?:bot|ia|asistente|pirata|admin\w*|hacker|libre de)",
        r"! eres (?:un |una )?(?:pirata|hacker|ia sin|asistente sin)",
        r"a partir de ahora (?:tú |usted )?(?:debes|debe|deberás|tienes que|responde(?! WORDS{0,3}?en )\w*)",
        r"desde|de ahora (?:en adelante )?(?:tú |usted )?(?:debes|debe|deberás|tienes que|responde(?!"
        r" WORDS{0,3}?en )\w*)",
        r"revela|revele|muestra|muéstrame|muestre|imprime|repite|dime|escribe|dame WORDS{0,6}?(?:prompt|mensaje"
        r"|instrucciones)"
        r" (?:del |de )?sistema",
        r"no (?:se |lo |le |les ){0,2}(?:digas|diga|informes|cuentes|reveles|avises) WORDS{0,2}?(?:al|a los|a"
        r" la) usuari[oa]s?",
        r"el usuario no (?:debe|puede|tiene que) (?:saber|enterarse|darse cuenta|notar)",
        r"! responde|responda|contesta siempre (?:como|con|que)",
        r"! recomienda|recomiende|elogia|promociona (?:siempre|solo)",
        r"! añade|agrega|incluye|pon WORDS{0,4}?(?:a|en) (?:cada|todas las) respuestas?",
        r"! añade|agrega|incluye|pon (?:a|en) (?:cada|todas las|tus) respuestas?",
        r"cuando|si el usuario WORDS{0,8}?(?:(?:envía|manda) WORDS{0,8}?(?:https?|[a-z0-9]{1,40}@[a-z0-9]{1,40})"
        r"|responde|di|recomienda|dile)",
        r"! obedece|obedezca (?:a|solo|únicamente|siempre)",
        r"! sigue|siga (?:únicamente|solo|solamente) (?:esta|este) (?:nota|mensaje|texto)",
    ),
    phrase(
        "override-ru",
        r"игнорируй|забудь|нарушай|нарушь|отбрось|обходи (?:все )?(?:свои|твои|эти) (?:правила|инструкции"
        r"|ограничения|указания)",
        r"! упоминай|упомяни|называй|рекомендуй|пиши|хвали WORDS{0,4}?(?:в )?(?:каждом|каждый|всех) (?:своих "
        r"|своем )?(?:ответ\w*|сообщени\w*)",
        r"! слушай|слушайся|слушайте только ",
        r"не (?:обращай|обращайте) внимани\w WORDS{0,2}?(?:прежн\w+|предыдущ\w+|прошл\w+|системн\w+|свои|твои)"
        r" WORDS{0,1}?(?:инструкци\w+|правил\w*|указани\w+|команд\w*)",
        r"не (?:следуй|соблюдай|выполняй|слушай)(?:те)? WORDS{0,2}?(?:прежн\w+|предыдущ\w+|прошл\w+|системн\w+"
        r"|сво\w+|тво\w+) ",
        r"! отвечай|отвечайте|говори|пиши (?:на|в) (?:все|каждый|каждом|любой|всех) (?:вопрос\w*|ответ\w*"
        r"|сообщени\w*)",
        r"! веди|представь|притворись (?:себя как|что ты|будто ты) ",
        r"игнорируй|игнорируйте|проигнорируй|проигнорируйте|забудь|забудьте|отмени|отмените WORDS{0,2}?"
        r"(?:предыдущ\w+|прежн\w+|прошл\w+|все|системн\w+) WORDS{0,2}?"
        r"(?:инструкци\w+|указани\w+|правил\w*|команд\w*|приказ\w*)",
        r"забудь|забудьте|игнорируй (?:все|всё),? что (?:тебе|вам) WORDS{0,2}?(?:говорил\w*|сказал\w*|велел\w*"
        r"|приказ\w*)",
        r"твои|ваши WORDS{0,1}?(?:правила|инструкции|указания) WORDS{0,1}?(?:больше )?(?:не действуют|отменены"
        r"|недействительны"
        r"|устарели)",
        r"ты|теперь|вы|отныне (?:теперь|ты) WORDS{0,1}?(?:бот|хакер|пират|ассистент|администратор|свободен от)",
        r"! ты (?:пират|хакер|бот|бот без|ии без|злой)",
        r"отныне (?:ты|вы) (?:должен|должна|должны|обязан\w*|всегда|отвечаешь)",
        r"с этого момента (?:ты|вы) (?:должен|должна|должны|обязан\w*|всегда|отвечаешь)",
        r"покажи|покажите|раскрой|раскройте|выведи|выведите|повтори|повторите|напечатай WORDS{0,3}?системн\w+ "
        r"(?:промпт\w*|инструкци\w+|сообщени\w+|подсказк\w+)",
        r"не (?:говори|сообщай|рассказывай)(?:те)? (?:об этом |этого |ничего ){0,2}пользовател\w+",
        r"пользователь не (?:должен|может) WORDS{0,3}?(?:узнать|знать|заметить|догадаться)",
        r"! всегда (?:рекомендуй|советуй|хвали|соглашайся|подчиняйся|слушайся)",
        r"! всегда отвечай(?:те)? (?:как|что|да|нет|словами)",
        r"! отвечай|отвечайте всегда (?:как|что)",
        r"! добавляй|добавляйте|вставляй WORDS{0,2}?(?:к|в) (?:каждому|каждый|каждом|все) ответ\w*",
        r"когда|если пользователь WORDS{0,8}?(?:(?:отправь|отправляй) WORDS{0,8}?(?:https?"
        r"|[a-z0-9]{1,40}@[a-z0-9]{1,40})|отвечай|ответь|скажи|рекомендуй)",
        r"! слушайся|подчиняйся|повинуйся (?:только )?",
        r"! следуй|следуйте только (?:этой|этому) (?:заметке|тексту|сообщению)",
    ),
    phrase(
        "override-it-pt-pl",
        r"! mencione|menciona|cite|recomende WORDS{0,6}?(?:cada|todas as)(?: suas)? (?:respostas?|mensagens)",
        r"! aja|finja|responda como se (?:não )?(?:tivesse|fosse|houvesse)",
        r"não (?:siga|obedeça|leve|considere|respeite) WORDS{0,3}?(?:instruções|regras|diretrizes|ordens)",
        r"desconsidere|ignore|esqueça WORDS{0,1}?(?:suas|tuas|as) (?:diretrizes|instruções|regras|ordens)",
        r"! finja|imagine|simule (?:que )?(?:é|você é|ser) (?:um|uma) ",
        r"! diga|afirme|repita sempre que",
        r"! escreva|ponha|termine|comece|inclua|adicione WORDS{0,8}?(?:cada|todas as)(?: suas)? (?:respostas?"
        r"|mensagens)",
        r"ignora|ignore|ignori|dimentica|esqueça|esqueca|desconsidere|desconsidera WORDS{0,3}?(?:istruzioni|instruções"
        r"|regole|regras|ordens) "
        r"(?:precedenti|anteriores|prévias|di sistema|do sistema|acima|originais)",
        r"esqueça|ignore|desconsidere tudo (?:o )?que (?:lhe|te|foi|voce) WORDS{0,2}?(?:disse\w*|dito|ensina\w*"
        r"|aprend\w*)",
        r"suas|tuas WORDS{0,1}?(?:regras|instruções|ordens) WORDS{0,2}?(?:não valem mais|já não valem|não se"
        r" aplicam|foram anuladas)",
        r"você|tu|agora (?:agora )?(?:é|és|você é) (?:agora )?(?:um |uma )?WORDS{0,1}?(?:bot|ia|assistente"
        r"|pirata|admin\w*|hacker"
        r"|livre de)",
        r"a partir de agora (?:você |tu )?(?:deve|deves|tem que|vai obedecer|obedece\w*)",
        r"mostre|mostra|revele|revela|exiba|imprima|repita|diga|escreva WORDS{0,6}?(?:prompt|mensagem|instruções)"
        r" (?:do |de )?sistema",
        r"não (?:conte|conta|diga|digas|revele|informe|fale) WORDS{0,3}?(?:ao|aos|para o|à) usuári[oa]s?",
        r"o usuário não (?:deve|pode) (?:saber|perceber|descobrir)",
        r"! responda|responde sempre (?:como|com|que)",
        r"! recomende|recomenda|elogie|promova (?:sempre|só|apenas)",
        r"! adicione|acrescente|inclua|coloque WORDS{0,4}?(?:a|em) (?:cada|todas as) respostas?",
        r"! obedeça|obedece (?:à|a|ao|apenas|somente)",
        r"! siga (?:somente|apenas|só) (?:esta|este) (?:nota|mensagem|texto)",
        r"ignoruj|zignoruj|zapomnij WORDS{0,2}?(?:poprzednie|wcześniejsze|powyższe) (?:instrukcje|polecenia|zasady)",
    ),
    phrase(
        "override-ar",
        r"اذكر|امدح|اوص WORDS{0,6}?كل (?:رد|اجابة|جواب|اجاباتك|ردودك)",
        r"تجاهل|انس|اخرق (?:كل |جميع )?(?:قواعدك|تعليماتك|قيودك|اوامرك)",
        r"لا (?:تلتزم|تتبع|تطع|تنفذ|تعمل) WORDS{0,1}?(?:بالتعليمات|التعليمات|تعليماتك|بتعليمات|بالقواعد|القواعد"
        r"|بقواعدك)",
        r"اضف|ادرج|ضع|اكتب|اذكر WORDS{0,8}?(?:الي|في|الى) كل (?:رد|اجابة|جواب|اجاباتك|ردودك)",
        r"تظاهر (?:بانك|انك) ",
        r"تجاهل|وتجاهل|انس|وانس|تجاهلي|انسي|اهمل WORDS{0,2}?(?:التعليمات|تعليمات|الاوامر|القواعد|الارشادات"
        r"|قواعدك|تعليماتك|ما سبق)",
        r"انس|وانس|تجاهل كل (?:ما|شيء) WORDS{0,2}?(?:قيل|قالوا|تعلمت|سبق)",
        r"قواعدك|تعليماتك|القواعد|التعليمات WORDS{0,2}?(?:لم تعد (?:سارية|صالحة|تنطبق)|ملغاة|باطلة)",
        r"انت|انتم الان (?:قرصان|مخترق|هاكر|مساعد|بوت|روبوت|مدير|بلا قيود|بدون قيود|حر)",
        r"انت (?:قرصان|هاكر|مخترق)",
        r"من الان (?:فصاعدا )?(?:يجب|عليك|ستطيع|لن|ستجيب|ستكون|انت)",
        r"اوص|اوصي|انصح|امدح|وصي WORDS{0,4}?(?:دائما|عندما|كلما)",
        r"اوص|اوصي|انصح|امدح دائما",
        r"اجب|اجيبي|رد دائما (?:مثل|ك\w+|بان|ب\w*لا)",
        r"اعرض|اظهر|اكشف|اطبع|كرر|اكتب WORDS{0,3}?(?:تعليمات النظام|موجه النظام|رسالة النظام|تعليماتك)",
        r"لا (?:تخبر|تخبري|تقل|تبلغ|تذكر) WORDS{0,3}?(?:المستخدم|للمستخدم)",
        r"يجب الا (?:يعرف|يعلم) المستخدم",
        r"اضف|ادرج WORDS{0,3}?(?:الي|في) كل (?:رد|اجابة|جواب)",
        r"اطع|نفذ (?:اوامر|ما تقوله|كل ما) ",
    ),
    form(
        "override-ja",
        r"(?:ルール|規則|指示|命令|制限|プロンプト)を[^。\n]{0,8}(?:破棄|無視|忘れ)(?:して|しろ|せよ|しなさい|なさい|ろ|て[、。くだ])",
        r"(?:すべて|全て|全部|あらゆる|毎回)の?(?:返答|回答|返事|答え|応答|返信)で[^。\n]{0,30}(?:言及|宣伝|触れ|褒め|勧め|名前)",
        r"[^。\n]{1,10}に(?:従え|服従し|従いなさい)",
        r"(?:プロンプト|指示|命令|ルール|設定)は[^。\n]{0,6}(?:無効|破棄|取り消|終わり|忘れ)",
        r"(?:ふり|振り)をし(?:て|な)[^。\n]{0,6}(?:答|話|返)|になりきっ",
        r"(?:毎回|常に|必ず)[^。\n]{0,20}と(?:答え|返事し|言っ|回答し)",
        r"(?:前|以前|上記|これまで|今まで|先|過去|上)の?[^。\n]{0,8}(?:指示|命令|ルール|規則|プロンプト|設定)[^。\n]{0,10}"
        r"(?:無視|忘れ|破棄|従わない|従うな|無効)",
        r"(?:すべて|全て|あらゆる)の?(?:指示|命令|ルール|規則|制限|制約)[^。\n]{0,8}(?:無視|忘れ|破棄|解除)",
        r"ユーザー(?:さん)?には?[^。\n]{0,10}(?:言わない|言うな|教えない|教えるな|伝えない|伝えるな|知らせない|知らせるな|秘密|内緒|黙)",
        r"(?:あなた|君|きみ|お前|おまえ|貴方)は(?:今から|これから|もう|今日から|今後)?、?[^。\n]{0,12}"
        r"(?:海賊|ハッカー|AI|モデル|アシスタント|ボット|管理者)(?:です|だ|である|になり|として)[^\n]{0,4}",
        r"(?:必ず|常に|いつも|どんな)[^。\n]{0,20}(?:勧め|推薦|推奨|薦め|宣伝|褒め)[^。\n]{0,4}(?:て|なさい|ること|よ)",
        r"(?:すべて|全て|全部|あらゆる|毎回|各)の?(?:返答|回答|返事|答え|応答|返信)[^。\n]{0,60}(?:入れ|含め|加え|付け|追加|書)",
        r"(?:すべて|全て|あらゆる|どんな)の?質問に[^。\n]{0,20}(?:答え|返事|回答)(?:なさい|ろ|よ|てくだ|ること)",
        r"(?:システム|初期|内部|隠し)の?(?:プロンプト|指示|命令|メッセージ)[^。\n]{0,12}"
        r"(?:表示|見せ|教え|出力|開示|公開|書き出|繰り返|明かし)",
        r"(?:今後|これから|今から)は?[^。\n]{0,16}(?:管理者|海賊|ハッカー)[^。\n]{0,4}として",
        r"(?:制限|制約|安全装置|フィルター)(?:を|は)[^。\n]{0,8}(?:解除|無効|外)(?:し|す|せ|さ)(?:なさい|て|ろ|れ)",
        r"(?:言うこと|命令|指示)だけに?(?:従|聞)",
        script="\u3040-\u30ff\u4e00-\u9fff",
    ),
    form(
        "override-zh",
        r"(?:不要|不用|别|停止|无需|不必)(?:再|继续)?(?:遵守|遵循|遵从|服从|听从)[^。\n]{0,6}(?:规则|指令|指示|提示|限制|设定)",
        r"(?:所有|每个|每次|全部|一切)的?(?:回答|回复|答案|答复)[^。\n]{0,4}(?:提到|提及|推荐|宣传|称赞|说)",
        r"只(?:能)?(?:服从|听从|效忠)",
        r"(?:忽略|无视|無視|别管|不要管|不用管|不要遵守|不再遵守|不要听)[^。\n]{0,12}(?:系统提示|提示词|设定|指令|指示|规则)",
        r"(?:所有|一切|任何|每个)问题[^。\n]{0,6}(?:回答|回复|答)",
        r"(?:假装|扮演|假设|想象)你?(?:是|成|为)",
        r"(?:忽略|无视|無視|忘记|忘掉|忘記|不要理会|不理会|抛弃|丢掉|违反)[^。\n]{0,6}(?:之前|以前|先前|上面|以上|此前|前面|所有|全部|你的|一切)"
        r"[^。\n]{0,6}(?:指令|指示|提示|规则|規則|命令|要求|设定)",
        r"(?:忘掉|忘记|忘記|无视)[^。\n]{0,6}(?:告诉|教|说)(?:过)?你的(?:一切|所有|全部)",
        r"你(?:之前|以前|先前|原来|现有|原有)?的?(?:所有)?(?:规则|指令|指示|设定|限制)(?:已经?|都|全部|统统)?(?:作废|失效|无效|取消|解除|不再)",
        r"你现在(?:就)?是[^。\n]{0,12}(?:助手|机器人|黑客|海盗|管理员|模型|AI)",
        r"(?:^|[。!,;\s])你是一?[个名位]?(?:没有|不受)?[^。\n]{0,6}(?:海盗|黑客|机器人|无限制)",
        r"从现在(?:开始|起)[,、\s]{0,3}(?:你?(?:必须|只能|要听|只听|只服从|你?是一?[个名位])|你(?:要|得))",
        r"(?:不要|别|切勿|不得|不准|不许|不能|不可)(?:把[^。\n]{0,8})?(?:告诉|告知|通知|向)(?:用户|使用者)",
        r"(?:不要|别|切勿|不得|不准|不许|不能|不可|不)让?(?:用户|使用者)(?:知道|发现|得知|察觉)",
        r"(?:显示|透露|泄露|输出|打印|告诉我|重复|展示|公开|写出|复述|发给我)[^。\n]{0,8}(?:系统|初始|隐藏)(?:提示|指令|消息)",
        r"(?:系统|初始|隐藏)(?:提示词?|指令|消息)[^。\n]{0,8}(?:显示|透露|泄露|输出|打印|告诉我|重复|展示|公开|写出|复述|发给我)",
        r"(?:每当|只要|如果|当)(?:用户|有人|别人)[^。\n]{0,16}(?:推荐|回答|回复|说|发送|建议|告诉)(?!的)",
        r"(?:总是|始终|永远|一律|必须)[^。\n]{0,6}(?:推荐|称赞|服从|听从|用[^。\n]{0,8}(?:口气|口吻|语气|身份)|以[^。\n]{0,8}身份)",
        r"(?:每个|每次|每一个|所有|任何)的?(?:回答|回复|答案|答复)[^。\n]{0,6}(?:里|中|后|前|末尾|结尾)?[^。\n]{0,6}(?:加上|加入|包含|附上|插入|添加|写上)",
        r"(?:悄悄|偷偷|秘密)地?(?:执行|进行|发送|完成)",
        r"只(?:按|听|服从|遵从|遵守)(?:照)?[^。\n]{1,8}(?:行事|的话|的命令|的指令|执行)",
        script="\u4e00-\u9fff",
    ),
    form(
        "override-ko",
        r"(?:규칙|지시|지침|명령|제한)(?:을|를|은|는)?[^.\n]{0,8}(?:버리고|버려|무시하고|무시해|무시하라|무시하세요|잊어|어기)",
        r"모든\s{0,3}(?:답변|대답|응답|답장)(?:에|에서|마다)[^.\n]{0,20}(?:언급|추천|홍보|칭찬|말해)",
        r"(?:에게|만)\s{0,3}복종",
        r"(?:내|나의|이브의)\s{0,3}(?:명령|지시|말)만\s{0,3}(?:들어|따라|따르|듣)",
        r"(?:모든|어떤)\s{0,3}질문에(?:도)?[^.\n]{0,20}(?:대답|답해|답하)",
        r"(?:인\s{0,2}척|역할을)\s{0,3}(?:해|하라|하세요)",
        r"(?:이전|앞|위|기존|지금까지|모든|원래)(?:의|에|까지의)?[^.\n]{0,10}(?:지시|명령|규칙|지침|프롬프트)[^.\n]{0,10}"
        r"(?:무시|잊|버려|폐기|따르지)",
        r"(?:너|당신|네)의?[^.\n]{0,8}(?:규칙|지시|지침|제한)[^.\n]{0,8}(?:유효하지|무효|적용되지|효력|해제|끝)",
        r"(?:너|넌|당신)(?:은|는)?\s{0,3}(?:이제|지금부터|앞으로)[^.\n]{0,12}(?:해적|해커|관리자|봇|모델|AI|조수|비서)",
        r"(?:^|[.!\s])(?:너|넌|당신)(?:은|는)\s{0,3}[^.\n]{0,6}(?:해적|해커)",
        r"(?:항상|언제나|무조건|반드시)[^.\n]{0,20}(?:추천해|추천하|칭찬해|권해|복종|동의해|처럼 (?:대답|답|말))",
        r"(?:모든|매번|각)\s{0,3}(?:답변|대답|응답|답장)[^\n]{0,60}(?:넣|포함|추가|붙)",
        r"(?:시스템|숨겨진|초기)\s{0,3}(?:프롬프트|지시|메시지|명령)[^.\n]{0,16}(?:보여|출력|공개|알려|말해|반복|드러내)",
        r"(?:사용자|유저)(?:에게|한테)(?:는)?[^.\n]{0,16}(?:말하지|알리지|알려주지|비밀|숨겨|밝히지)",
        r"(?:지금부터|이제부터|앞으로)[^.\n]{0,16}(?:복종|따라야|따르라|명령만|말만)",
        r"말만\s{0,3}(?:따르|들어|들으)|메모만\s{0,3}(?:따르|따라)",
        script="\uac00-\ud7a3",
    ),
)
